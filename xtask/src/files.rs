//! Files and folders that are read, with errors that name them, and programs that are asked whether they run.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<std::io::Result<Vec<PathBuf>>>()
    });
    let mut paths = entries.with_context(|| format!("cannot list {}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

/// The files of a folder, and if `is_deep` also those of the folders in it.
pub(crate) fn below(folder: &Path, is_deep: bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in list(folder)? {
        if path.is_file() {
            found.push(path);
        } else if is_deep && path.is_dir() {
            found.extend(below(&path, true)?);
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

pub(crate) fn runs(program: impl AsRef<OsStr>) -> bool {
    let version = Command::new(program).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}
