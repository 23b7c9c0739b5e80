//! The files beside sled's own log `db`. The database works without each of them, so damaged ones are moved aside.
//!
//! If one of these is damaged, sled reports that the whole database is, or treats everything after a place in the log
//! as lost:
//!
//! - - `snap.LSN` gives the place of each page. Without it, sled reads the whole log, with the same result.
//! - - `snap.LSN.generating` is an incomplete snapshot from the end of a process. sled reads it, even before any other.
//! - - `conf` has the settings with which the database was made, which are always the same.
//! - - `blobs/LSN` has a page that is too long for the log. There is usually none. If it is damaged, that page is lost.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    access::not_usable,
    files::{entries, free_name},
};
use crate::error::OpenError;

const SNAPSHOT: &str = "snap.";
/// End of the name of an incomplete snapshot.
const UNFINISHED: &str = ".generating";
/// Bytes after a snapshot: its length, and a checksum of four bytes.
const SNAPSHOT_END: usize = 12;
/// Bytes before a blob: a checksum, and the kind of its page.
const BLOB_HEAD: usize = 5;

#[derive(Debug, Default)]
pub(super) struct DatabaseParts {
    pub(super) snapshots: Vec<PathBuf>,
    unfinished: Vec<PathBuf>,
    damaged: Vec<PathBuf>,
    /// Whether sled has to read the log from its beginning.
    replays: bool,
    loses: bool,
}

// === impl DatabaseParts ===

impl DatabaseParts {
    pub(super) fn check(database: &Path) -> Result<Self, OpenError> {
        let is_whole_file = |path: &Path, is_whole: fn(&[u8]) -> bool| {
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
                        parts.replays |= !is_whole_file(&path, is_whole_snapshot)?;
                        parts.snapshots.push(path);
                    }
                }
                "conf" if !is_whole_file(&path, is_whole_conf)? => parts.damaged.push(path),
                "blobs" => {
                    for blob in entries(&path).map_err(|error| not_usable(&path, error))? {
                        if !(has_name(&blob) && is_whole_file(&blob, is_whole_blob)?) {
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

    /// Returns whether opening may destroy data: sled overwrites damaged parts of a log that it reads from the
    /// beginning, and data that a lost page refers to.
    pub(super) fn may_cost(&self) -> bool {
        self.replays || self.loses
    }

    /// Returns the position from which sled will read the log. Before it, sled reads only the heads of segments.
    pub(super) fn read_from(&self) -> u64 {
        let lsn = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            u64::from_str_radix(name.strip_prefix(SNAPSHOT)?, 16).ok()
        };
        self.snapshots.iter().filter_map(lsn).max().unwrap_or(0)
    }

    pub(super) fn give_up_snapshots(&mut self) {
        self.replays = true;
        self.damaged.append(&mut self.snapshots);
    }

    /// Removes incomplete files, and moves damaged ones into a folder beside the database. Returns the folder's path if
    /// there were any.
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

fn is_sound(path: &Path, is_whole: fn(&[u8]) -> bool) -> io::Result<bool> {
    match fs::read(path) {
        Ok(bytes) => Ok(is_whole(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(false),
        // A bad sector gives the same error each time.
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

/// sled itself writes a short file anew.
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

/// sled panics for a name that is not text, and ignores one that is not a number.
fn has_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_str().is_some())
}
