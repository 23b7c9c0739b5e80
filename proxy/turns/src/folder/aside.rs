//! Databases that are moved aside, and copies of databases that may lose data.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::if_there;

use super::{
    access::not_usable,
    files::{copy_all, entries, free_name},
};
use crate::{counter::Flushed, error::OpenError, health::MovedAside};

/// The largest database that is copied before it is opened, in bytes. Damage in sled's last segment (512 KiB) looks to
/// sled like a write that never finished, so it removes everything after it without an error. In a larger database,
/// most damage is detected, because pages are missing.
const MAX_COPY: u64 = 16 << 20;
pub(super) const DAMAGED: &str = "damaged";

/// Folders that are removed at the next start if a kill leaves them.
const SCRATCH: &str = "before";
const TRASH: &str = "trash";
pub(super) const PROBE: &str = "probe";

/// A copy of a database from before it was opened. It is deleted on drop, unless it is kept.
///
/// A copy for a repair has its final name at once, so that a kill in the middle of the repair leaves the copy.
pub(super) struct CopiedDatabase(PathBuf);

// === impl CopiedDatabase ===

impl CopiedDatabase {
    /// Copies a database, unless it is large or there is no room.
    pub(super) fn of_short(dir: &Path, database: &Path) -> Option<Self> {
        let length = fs::metadata(database.join("db")).ok()?.len();
        if !(1..=MAX_COPY).contains(&length) {
            return None;
        }
        // If the copy fails, dropping this removes the incomplete copy.
        let copied = Self(dir.join(SCRATCH));
        if let Err(error) = copy_all(database, &copied.0) {
            tracing::warn!(%error, "the turn log is opened without a copy of it");
            return None;
        }
        Some(copied)
    }

    pub(super) fn before_repair(dir: &Path, database: &Path, why: &str) -> Result<Self, OpenError> {
        let scratch = dir.join(SCRATCH);
        let make = || {
            copy_all(database, &scratch)?;
            let to = free_name(dir, DAMAGED);
            fs::rename(&scratch, &to)?;
            Ok(Self(to))
        };
        make().map_err(|source| {
            // An incomplete copy would take the room that is missing.
            fs::remove_dir_all(&scratch).ok();
            OpenError::NoCopy {
                dir: dir.to_owned(),
                why: why.to_owned(),
                n_mib: n_bytes(database).unwrap_or(0) / (1 << 20) + 1,
                source,
            }
        })
    }

    pub(super) fn named(dir: &Path) -> Self {
        Self(free_name(dir, DAMAGED))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn keep(mut self) -> io::Result<PathBuf> {
        let path = std::mem::take(&mut self.0);
        if !path.ends_with(SCRATCH) {
            return Ok(path);
        }
        let to = free_name(path.parent().unwrap_or(&path), DAMAGED);
        fs::rename(&path, &to)?;
        Ok(to)
    }

    pub(super) fn restore(&self, database: &Path) -> io::Result<()> {
        remove(database)?;
        copy_all(&self.0, database)
    }

    pub(super) fn put_back(mut self, database: &Path) -> io::Result<()> {
        let path = std::mem::take(&mut self.0);
        remove(database)?;
        fs::rename(&path, database)
    }
}

impl Drop for CopiedDatabase {
    fn drop(&mut self) {
        if self.0.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = remove(&self.0) {
            tracing::warn!(%error, "a copy of the turn log cannot be removed");
        }
    }
}

/// Removes a folder in such an order that an interrupted removal does not leave something that looks like a database.
fn remove(path: &Path) -> io::Result<()> {
    let trash = path.with_file_name(TRASH);
    if_there(fs::remove_dir_all(&trash))?;
    if_there(fs::rename(path, &trash))?;
    if_there(fs::remove_dir_all(&trash)).map(drop)
}

fn n_bytes(dir: &Path) -> io::Result<u64> {
    let sizes = entries(dir)?.into_iter().map(|path| {
        let about = fs::metadata(&path)?;
        if about.is_dir() {
            n_bytes(&path)
        } else {
            Ok(about.len())
        }
    });
    sizes.sum()
}

pub(super) fn move_aside(
    dir: &Path,
    database: &Path,
    why: String,
) -> Result<MovedAside, OpenError> {
    let to = free_name(dir, DAMAGED);
    let moved = fs::rename(database, &to).and_then(|()| Flushed::remove(dir));
    match moved {
        Ok(()) => Ok(MovedAside { to, why }),
        Err(source) => Err(OpenError::Damaged {
            dir: dir.to_owned(),
            why,
            source,
        }),
    }
}

pub(super) fn remove_leftovers(dir: &Path) -> Result<(), OpenError> {
    for name in [SCRATCH, TRASH, PROBE] {
        let path = dir.join(name);
        let removed = if_there(fs::remove_dir_all(&path));
        removed.map_err(|error| not_usable(&path, error))?;
    }
    Ok(())
}
