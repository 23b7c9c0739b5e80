//! Shared helpers for files.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use metaclaw_chat::{if_there, now_ms};

/// Returns the paths in a folder, or none if it does not exist.
pub(super) fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = if_there(fs::read_dir(dir))?.into_iter().flatten();
    entries.map(|entry| Ok(entry?.path())).collect()
}

pub(super) fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for path in entries(from)? {
        let to = to.join(path.file_name().unwrap_or_default());
        let about = fs::metadata(&path)?;
        if about.is_dir() {
            copy_all(&path, &to)?;
        } else if about.is_file() {
            fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

pub(super) fn free_name(dir: &Path, what: &str) -> PathBuf {
    let mut names = (now_ms()..).map(|ms| dir.join(format!("{what}-{ms}")));
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    names.find(is_free).unwrap_or_else(|| dir.join(what))
}

/// Writes a file that only its owner can read.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    use io::Write as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}
