//! The lock of the library's folder: proxies of one home (`--port`) learn into one folder, and each change of lessons
//! reads a file and writes it anew.

use std::{
    fs::{self, File},
    path::Path,
};

use crate::journal::JournalError;

/// Its name: one with a dot is no lesson.
const FILE: &str = ".lock";

/// Waits until nobody else changes lessons, in this process or another; they are ours while the file is open.
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
