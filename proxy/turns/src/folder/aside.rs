//! Databases that are put out of the way, and copies of those that may lose something.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::now_ms;

use super::files::absent;
use crate::{error::OpenError, health::MovedAside};

/// The longest database that is copied before it is opened. A damage in sled's last segment, of 512 KiB, looks to
/// it like a write that never finished: it takes all behind it away, without complaint. In a longer database most
/// damage is found out, as there are pages to miss.
const MAX_COPY: u64 = 16 << 20;

/// A copy of a database as it was before it was opened: gone with this, unless it is kept.
pub(super) struct Copied(PathBuf);

// === impl Copied ===

impl Copied {
    /// Copies a database unless it is long.
    pub(super) fn make(dir: &Path, database: &Path) -> Option<Self> {
        let length = fs::metadata(database.join("db")).ok()?.len();
        if !(1..=MAX_COPY).contains(&length) {
            return None;
        }
        let copied = Self(dir.join("before"));
        let copy = copy(database, &copied.0);
        copy.inspect_err(
            |error| tracing::warn!(%error, "the turn log is opened without a copy of it"),
        )
        .ok()?;
        Some(copied)
    }

    /// Where it is from now on.
    pub(super) fn keep(self) -> io::Result<PathBuf> {
        let to = self.0.with_file_name(format!("damaged-{}", now_ms()));
        fs::rename(&self.0, &to)?;
        Ok(to)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0).or_else(absent) {
            tracing::warn!(%error, "a copy of the turn log cannot be removed");
        }
    }
}

fn copy(database: &Path, to: &Path) -> io::Result<()> {
    fs::remove_dir_all(to).or_else(absent)?;
    fs::create_dir(to)?;
    for entry in fs::read_dir(database)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Moves the database out of the way, with the count of its transactions.
pub(super) fn move_aside(dir: &Path, what: &str, why: String) -> Result<MovedAside, OpenError> {
    let to = dir.join(format!("{what}-{}", now_ms()));
    let moved = fs::rename(dir.join("sled"), &to).and_then(|()| remove_count(dir));
    match moved {
        Ok(()) => Ok(MovedAside { to, why }),
        Err(source) => Err(OpenError::Damaged {
            dir: dir.to_owned(),
            why,
            source,
        }),
    }
}

/// Removes the count of transactions: it is another database's.
pub(super) fn remove_count(dir: &Path) -> io::Result<()> {
    fs::remove_file(dir.join("flushed")).or_else(absent)
}
