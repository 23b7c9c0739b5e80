//! Checks whether the log's files are usable before sled opens any. sled would not say which one fails, and treats some
//! unreadable files as the end of the log.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
};

use metaclaw_chat::if_there;
use rustix::fs::Access;

use super::{files::entries, opening::FORMAT};
use crate::{error::OpenError, store::StoreError};

/// The threads of sled, and ours.
const THREADS: usize = 9;

/// Checks every existing file of the log.
///
/// # Errors
/// Returns [`OpenError::NotUsable`], which names the first unusable file.
pub(super) fn check(dir: &Path, database: &Path) -> Result<(), OpenError> {
    threads().map_err(|error| not_usable(dir, error))?;
    folder(dir)?;
    for name in ["FORMAT", "flushed"] {
        file(&dir.join(name))?;
    }
    folder(database)?;
    for path in inside(database)? {
        let name = path.file_name().unwrap_or_default();
        if name == "blobs" {
            folder(&path)?;
            inside(&path)?.iter().try_for_each(|blob| file(blob))?;
        } else if name == "db" || name == "conf" {
            file(&path)?;
        }
    }
    Ok(())
}

/// Checks whether this process may start so many threads. sled waits forever for threads that it may not start.
fn threads() -> io::Result<()> {
    let start = |_| thread::Builder::new().spawn(thread::park);
    let mut failed = Ok(());
    let mut started = Vec::new();
    for thread in (0..THREADS).map(start) {
        match thread {
            Ok(thread) => started.push(thread),
            Err(error) => {
                failed = Err(error);
                break;
            }
        }
    }
    for thread in started {
        thread.thread().unpark();
        // The thread does not panic.
        thread.join().ok();
    }
    failed
}

fn inside(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    entries(dir).map_err(|error| not_usable(dir, error))
}

/// Checks that files can be created in a folder, if it exists.
fn folder(path: &Path) -> Result<(), OpenError> {
    let unusable = |error| not_usable(path, error);
    let about = if_there(fs::metadata(path)).map_err(unusable)?;
    match about.map(|about| about.is_dir()) {
        None => return Ok(()),
        Some(false) => return Err(unusable(io::ErrorKind::NotADirectory.into())),
        Some(true) => {}
    }
    let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(path, all).map_err(|error| unusable(error.into()))
}

/// Checks that a file can be read and written, if it exists.
fn file(path: &Path) -> Result<(), OpenError> {
    let tried = || {
        if fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        fs::OpenOptions::new().read(true).write(true).open(path)
    };
    let opened = if_there(tried()).map(drop);
    opened.map_err(|error| not_usable(path, error))
}

/// Makes the error for an unusable file of the log, with advice.
pub(super) fn not_usable(path: &Path, source: io::Error) -> OpenError {
    use io::ErrorKind as Kind;
    let is_limit = |code: rustix::io::Errno| source.raw_os_error() == Some(code.raw_os_error());
    let remedy = match source.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => {
            let dir = path.parent().unwrap_or(path).to_owned();
            return OpenError::Full { dir };
        }
        Kind::PermissionDenied => whose(path),
        Kind::ReadOnlyFilesystem => "its file system is mounted read-only: mount it for writing".to_owned(),
        Kind::IsADirectory | Kind::NotADirectory | Kind::AlreadyExists => {
            "something else lies in its place: move that away".to_owned()
        }
        _ if is_limit(rustix::io::Errno::MFILE) || is_limit(rustix::io::Errno::NFILE) => {
            "no more files may be open: raise the limit (`ulimit -n`)".to_owned()
        }
        Kind::WouldBlock => {
            "no more threads may be started: raise the limit of processes (`ulimit -u`, or the container's)".to_owned()
        }
        _ => "see to that, then start again".to_owned(),
    };
    let path = path.to_owned();
    OpenError::NotUsable {
        path,
        source,
        remedy,
    }
}

/// Describes the owner of a path that is not accessible.
fn whose(path: &Path) -> String {
    let us = rustix::process::geteuid().as_raw();
    let shown = path.display();
    match fs::symlink_metadata(path).map(|it| (it.uid(), it.mode() & 0o777)) {
        Ok((owner, mode)) if owner == us => {
            format!("its mode is {mode:o}: `chmod u+rwX {shown}`")
        }
        Ok((owner, _)) => {
            let shown = path.parent().unwrap_or(path).display();
            format!(
                "it belongs to user {owner}, and this process runs as user {us}: `sudo chown -R {us} {shown}`"
            )
        }
        Err(_) => {
            let shown = path.parent().unwrap_or(path).display();
            format!("see who owns it: `ls -ld {shown}`")
        }
    }
}

/// Converts a store's error into the reason why a database cannot be opened.
pub(super) fn open_error(dir: &Path, error: StoreError) -> OpenError {
    let dir = dir.to_owned();
    match error {
        StoreError::Held => OpenError::Held {
            dir,
            holder: "another process".to_owned(),
        },
        StoreError::Full => OpenError::Full { dir },
        StoreError::NotWritable(source) => not_usable(&dir.join("sled"), source),
        StoreError::Foreign(names) => OpenError::Older {
            found: format!("of the tables {names}"),
            dir,
            known: FORMAT,
        },
        error @ (StoreError::Damaged(_) | StoreError::Removed | StoreError::Other(_)) => {
            OpenError::Other {
                dir,
                why: error.to_string(),
            }
        }
    }
}
