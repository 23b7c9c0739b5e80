//! The lock of the library's folder. Several proxies of one home folder (`--port`) share it, and each change of lessons
//! reads a file and writes it again.

use std::{
    fs::{self, File},
    path::Path,
};

use crate::journal::JournalError;

/// The file's name. A name with a dot is no lesson.
const FILE: &str = ".lock";

/// Waits until no other process or thread changes lessons. The lock is held while the returned file is open.
pub(crate) fn lock(dir: &Path) -> Result<File, JournalError> {
    let path = dir.join(FILE);
    let locked = fs::create_dir_all(dir).and_then(|()| {
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        file.lock()?;
        Ok(file)
    });
    locked.map_err(|source| JournalError { path, source })
}
