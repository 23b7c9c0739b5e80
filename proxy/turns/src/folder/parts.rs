//! The files beside sled's own log `db`, each of which can be done without: what of them is damaged is put out of the way.
//!
//! sled answers that the database is damaged, or takes all behind a place of the log for lost, where only one of these is:
//!
//! - `snap.LSN` says where each page lies. Without it sled reads the whole log, and finds the same.
//! - `snap.LSN.generating` is one that was being written when the process ended. sled reads it all the same, before any other.
//! - `conf` says with which settings the database was made: always the same ones.
//! - `blobs/LSN` holds a page that is too long for the log: none, mostly. The page is what is lost with it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    access::not_usable,
    files::{entries, free_name},
};
use crate::error::OpenError;

/// How a file begins that says where each page lies.
const SNAPSHOT: &str = "snap.";
/// How it ends while it is written.
const UNFINISHED: &str = ".generating";
/// Behind a snapshot: its length, and a checksum of four bytes.
const SNAPSHOT_END: usize = 12;
/// Before a blob: a checksum, and what kind of page it is.
const BLOB_HEAD: usize = 5;

/// What there is beside the log.
#[derive(Debug, Default)]
pub(super) struct Parts {
    snapshots: Vec<PathBuf>,
    unfinished: Vec<PathBuf>,
    /// Damaged ones, with their places in the database's folder.
    damaged: Vec<PathBuf>,
    /// Whether the log is to be read from its beginning.
    replays: bool,
    /// Whether a page is lost.
    loses: bool,
}

// === impl Parts ===

impl Parts {
    /// Looks at them, and changes nothing.
    pub(super) fn look(database: &Path) -> Result<Self, OpenError> {
        let looked = |path: &Path, is_whole: fn(&[u8]) -> bool| {
            is_sound(path, is_whole).map_err(|error| not_usable(path, error))
        };
        let mut parts = Self::default();
        let inside = entries(database).map_err(|error| not_usable(database, error))?;
        for path in inside {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match &*name {
                snapshot if snapshot.starts_with(SNAPSHOT) => {
                    if snapshot.ends_with(UNFINISHED) {
                        parts.unfinished.push(path);
                    } else {
                        parts.replays |= !looked(&path, is_whole_snapshot)?;
                        parts.snapshots.push(path);
                    }
                }
                "conf" if !looked(&path, is_whole_conf)? => parts.damaged.push(path),
                "blobs" => {
                    for blob in entries(&path).map_err(|error| not_usable(&path, error))? {
                        if !(has_name(&blob) && looked(&blob, is_whole_blob)?) {
                            parts.damaged.push(blob);
                            parts.loses = true;
                        }
                    }
                }
                _ => {}
            }
        }
        if parts.replays {
            parts.damaged.append(&mut parts.snapshots);
        }
        Ok(parts)
    }

    /// Whether sled may write over something for good: over what is damaged of a log that it reads from the beginning, and
    /// what a page that is lost leads to.
    pub(super) fn may_cost(&self) -> bool {
        self.replays || self.loses
    }

    /// Whether there is a snapshot that could be done without.
    pub(super) fn has_snapshot(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// From where on sled will read the log: before it nothing but heads of segments.
    pub(super) fn read_from(&self) -> u64 {
        let lsn = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            u64::from_str_radix(name.strip_prefix(SNAPSHOT)?, 16).ok()
        };
        self.snapshots.iter().filter_map(lsn).max().unwrap_or(0)
    }

    /// All that is to be read from the beginning.
    pub(super) fn give_up_snapshots(&mut self) {
        self.replays = true;
        self.damaged.append(&mut self.snapshots);
    }

    /// Removes what never was finished, and moves what is damaged into a folder beside the database: its path, where
    /// there was something.
    pub(super) fn settle(&mut self, dir: &Path, database: &Path) -> io::Result<Option<PathBuf>> {
        for path in self.unfinished.drain(..) {
            if fs::symlink_metadata(&path)?.is_dir() {
                self.damaged.push(path);
            } else {
                fs::remove_file(&path)?;
            }
        }
        if self.damaged.is_empty() {
            return Ok(None);
        }
        let to = free_name(dir, "repaired");
        for path in self.damaged.drain(..) {
            let place = path.strip_prefix(database).unwrap_or(&path);
            let to = to.join(place);
            fs::create_dir_all(to.parent().unwrap_or(dir))?;
            fs::rename(&path, to)?;
        }
        Ok(Some(to))
    }
}

/// Whether a file reads, and is whole.
fn is_sound(path: &Path, is_whole: fn(&[u8]) -> bool) -> io::Result<bool> {
    match fs::read(path) {
        Ok(bytes) => Ok(is_whole(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(false),
        // A disk that cannot give it back says the same each time.
        Err(error) if is_bad_sector(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_bad_sector(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn is_whole_snapshot(bytes: &[u8]) -> bool {
    let Some((content, end)) = bytes.split_last_chunk::<SNAPSHOT_END>() else {
        return false;
    };
    !content.is_empty() && end.ends_with(&crc32fast::hash(content).to_le_bytes())
}

/// A short one sled writes anew by itself.
fn is_whole_conf(bytes: &[u8]) -> bool {
    match bytes.split_last_chunk::<4>() {
        Some((content, sum)) => bytes.len() <= 8 || crc32fast::hash(content).to_le_bytes() == *sum,
        None => true,
    }
}

fn is_whole_blob(bytes: &[u8]) -> bool {
    match bytes.split_first_chunk::<4>() {
        Some((sum, content)) => {
            bytes.len() >= BLOB_HEAD && crc32fast::hash(content).to_le_bytes() == *sum
        }
        None => false,
    }
}

/// sled panics for a name that is no text, and passes over one that is no number.
fn has_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_str().is_some())
}
