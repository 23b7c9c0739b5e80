//! Writes files completely or not at all, and identifies them by hash.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use metaclaw_chat::{if_there, make_private, regular};
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use crate::outcome::WiringError;

pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> WiringError {
    let path = path.to_owned();
    move |source| WiringError::Io { path, source }
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    if_there(regular(path).and_then(fs::read))
}

pub(crate) fn read_bounded(path: &Path) -> io::Result<String> {
    /// This is OpenClaw's own limit for a part of its configuration.
    const MAX_FILE: u64 = 2 << 20;
    let n_bytes = regular(path)?.metadata()?.len();
    if n_bytes > MAX_FILE {
        let said = format!("{n_bytes} bytes, and at most {MAX_FILE} are read");
        return Err(io::Error::other(said));
    }
    fs::read_to_string(path)
}

/// Replaces a file if it still has the bytes that were read. If there was no file, creates one that only its owner can
/// read.
pub(crate) fn exchange(
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<(), WiringError> {
    if read(path).map_err(io_error(path))?.as_deref() != before {
        let path = path.to_owned();
        return Err(WiringError::Busy { path });
    }
    let written = match before {
        Some(_) => replace(path, after),
        None => make_folders(path).and_then(|()| write_private(path, after)),
    };
    written.map_err(io_error(path))
}

/// Replaces an existing file. Its mode stays, and a link to it stays a link. The bytes are on the disk when this
/// returns.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let mode = fs::metadata(&path)?.permissions().mode();
    write(&path, bytes, mode & 0o7777)
}

/// The folders above a file that are not there, from the outside in.
pub(crate) fn missing_folders(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1).take_while(|it| !it.exists());
    let mut missing: Vec<PathBuf> = above.map(Path::to_owned).collect();
    missing.retain(|it| !it.as_os_str().is_empty());
    missing.reverse();
    missing
}

/// Makes the folders above a file, for their owner alone.
fn make_folders(path: &Path) -> io::Result<()> {
    make_private(path.parent().unwrap_or(path))
}

/// Removes a file. On the disk when this returns.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    sync_folder(path)
}

/// Writes a file that only its owner can read. The bytes are on the disk when this returns.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o600)
}

/// Writes to a temporary file that only its owner can read, and renames it. A killed process may leave the temporary
/// file, which may contain a key.
fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_file_name(unfinished(path) + &std::process::id().to_string());
    let written = write_and_sync(&beside, bytes).and_then(|file| {
        fs::rename(&beside, path)?;
        // The mode is not set at creation, because the umask would remove bits.
        file.set_permissions(Permissions::from_mode(mode))?;
        sync_folder(path)
    });
    if written.is_err() {
        // The first error is returned, not this one.
        fs::remove_file(&beside).ok();
    }
    written
}

/// Returns the name of a file that is being written. The writer's process id follows it.
fn unfinished(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.metaclaw-")
}

/// Removes what processes that were killed while they wrote this file have left beside it.
pub(crate) fn remove_unfinished(path: &Path) -> io::Result<()> {
    let (prefix, folder) = (unfinished(path), path.parent().unwrap_or(path));
    for entry in if_there(fs::read_dir(folder))?.into_iter().flatten() {
        let beside = entry?;
        let name = beside.file_name();
        let writer = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        let writer = writer.and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        if writer.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            if_there(fs::remove_file(beside.path()))?;
        }
    }
    Ok(())
}

fn write_and_sync(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}

/// Syncs the folder, so that the rename itself reaches the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_its_name_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let beside = folder.path().join(".settings.json.metaclaw-1");
        let file = write_and_sync(&beside, b"key").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
