//! Stores the number of flushed transactions in a file beside the database.
//!
//! If a database file is truncated within its last segment, it opens without an error and without its last turns,
//! because sled treats the truncation as a write that never finished. The journal's last number is then lower than the
//! one in the file `flushed`, and the loss is reported. After a kill, the database is never behind, because the file is
//! written after the flush. After a power cut it may be, and that is reported too.
//!
//! A truncation can also remove pages that sled had moved to the end of its file. In that case no number is behind.
//! Therefore the length of the database file is stored too. A database that is shorter than before is read completely.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use metaclaw_chat::if_there;

/// Number of decimal digits of a u64. The file always has the same length, so that writing it needs no free disk space.
const DIGITS: usize = 20;

#[derive(Debug)]
pub(crate) struct FlushCounter {
    file: File,
    database: File,
    count: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flushed {
    pub(crate) count: u64,
    /// Length of the database file at that time, in bytes. sled may shorten the file itself, so a shorter file is not
    /// proof of a loss.
    pub(crate) length: u64,
}

// === impl Flushed ===

impl Flushed {
    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join("flushed")
    }

    /// Removes the file, because it belongs to another database.
    pub(crate) fn remove(dir: &Path) -> io::Result<()> {
        if_there(fs::remove_file(Self::path(dir))).map(drop)
    }

    /// A missing or unreadable number counts as 0, because the log itself does not depend on this file.
    pub(crate) fn read(path: &Path) -> Self {
        let seen = fs::read_to_string(path).unwrap_or_default();
        let mut numbers = seen.lines().map(|line| line.trim().parse());
        let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
        Self {
            count: next(),
            length: next(),
        }
    }
}

// === impl FlushCounter ===

impl FlushCounter {
    pub(crate) fn open(path: &Path, db: &Path, count: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let counter = Self {
            file: options.open(path)?,
            database: File::open(db)?,
            count,
        };
        counter.write()?;
        Ok(counter)
    }

    pub(crate) fn next(&self) -> u64 {
        self.count + 1
    }

    pub(crate) fn flushed(&mut self) {
        self.count += 1;
        if let Err(error) = self.write() {
            tracing::warn!(%error, "the count of flushed transactions cannot be written down");
        }
    }

    fn write(&self) -> io::Result<()> {
        let length = self.database.metadata()?.len();
        let text = format!("{:0DIGITS$}\n{length:0DIGITS$}\n", self.count);
        self.file.write_all_at(text.as_bytes(), 0)
    }
}
