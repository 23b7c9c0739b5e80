//! Writes the files of the converted model.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::weights::LoadError;

/// Creates a file, fills it and syncs it to the disk.
pub(super) fn write(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), LoadError> {
    let fill_and_sync = || {
        let mut file = File::create(path)?;
        fill(&mut file)?;
        file.sync_all()
    };
    fill_and_sync().map_err(|source| LoadError::Write {
        file: path.to_owned(),
        source,
    })
}
