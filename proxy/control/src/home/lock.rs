//! Allows one process at a time in a home.
//!
//! The kernel releases a lock when its process ends in any way, so a lock that can be taken proves that no process
//! runs; no process id has to be checked.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The lock on a home, until this is dropped or the process ends.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

/// The process that has a home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// The subcommand, for example `start`.
    pub doing: String,
}

/// Why the home cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum HomeLockError {
    /// Another process has the lock.
    #[error(
        "`metaclaw {}` already runs in {} (process {}): `metaclaw stop{flag}` ends it, `metaclaw start --port N` starts another beside it",
        holder.doing, dir.display(), holder.pid
    )]
    Held {
        dir: PathBuf,
        holder: Holder,
        /// The arguments with which `stop` ends that process.
        flag: String,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

// === impl HomeLock ===

impl HomeLock {
    pub(super) fn acquire(path: &Path, doing: &str, flag: String) -> Result<Self, HomeLockError> {
        let mut file = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(path, &mut file, flag)),
            Err(TryLockError::Error(source)) => return Err(io_error(path, source)),
        }
        let us = Holder {
            pid: std::process::id(),
            doing: doing.to_owned(),
        };
        let written = serde_json::to_vec(&us)
            .map_err(io::Error::other)
            .and_then(|text| rewrite(&mut file, &text));
        written.map_err(|source| io_error(path, source))?;
        Ok(Self { _file: file })
    }

    pub(super) fn holder(path: &Path) -> Result<Option<Holder>, HomeLockError> {
        if !path.exists() {
            return Ok(None);
        }
        let mut file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(who(&mut file))),
            Err(TryLockError::Error(source)) => Err(io_error(path, source)),
        }
    }
}

fn open(path: &Path) -> Result<File, HomeLockError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| io_error(path, source))
}

fn rewrite(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text)
}

/// Reads what the holder wrote, which may be nothing yet.
fn who(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.read_to_string(&mut text).ok();
    read.and_then(|_| serde_json::from_str(&text).ok())
        .unwrap_or_else(|| Holder {
            pid: 0,
            doing: "start".to_owned(),
        })
}

fn held(path: &Path, file: &mut File, flag: String) -> HomeLockError {
    HomeLockError::Held {
        dir: path.parent().unwrap_or(path).to_owned(),
        holder: who(file),
        flag,
    }
}

fn io_error(path: &Path, source: io::Error) -> HomeLockError {
    HomeLockError::Io {
        path: path.to_owned(),
        source,
    }
}
