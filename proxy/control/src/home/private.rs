//! Files that only their owner may read, written whole or not at all.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Writes `bytes` to `path` with mode 0600: beside it first, then renamed over it, so that a reader
/// sees the old file or the new one and a kill leaves no half of either.
///
/// # Errors
/// When the file cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Through a link, as dotfiles in a repository are: the file is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = write_and_sync(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The error that counts is the first one.
        fs::remove_file(&beside).ok();
    }
    written
}

fn write_and_sync(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
