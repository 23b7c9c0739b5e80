//! How many transactions were flushed, written down beside the database.
//!
//! A database file that is cut within its last segment opens without complaint and with its last
//! turns gone: sled takes the cut for a write that never finished. The journal's last number is then
//! behind the one in the file `flushed`, and that is said. After a kill the database is never behind:
//! the file is written after the flush. After a power cut it may be, and that too is said.
//!
//! A cut can also take pages that sled had moved to the end of its file. No number is behind then. So the length of the
//! database's file is written down too, and a database that is shorter than it was is read through.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Digits of a u64. The file always has the same length, so that writing it needs no free space on the disk.
const DIGITS: usize = 20;

/// Counts flushed transactions in a file.
#[derive(Debug)]
pub(crate) struct FlushCounter {
    file: File,
    /// The database's own file.
    database: File,
    count: u64,
}

/// What the file says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flushed {
    /// How many transactions were flushed.
    pub(crate) count: u64,
    /// How many bytes the database's file had then. sled may shorten it by itself: a shorter file is no proof of a loss.
    pub(crate) length: u64,
}

// === impl Flushed ===

impl Flushed {
    /// The file's path. `dir` is the folder of the log.
    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join("flushed")
    }

    /// A number that is missing or does not read is 0: the log itself does not depend on this file.
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
    /// Opens the file at `path`, or makes it, and writes down `count` and the length of the database's file `db`.
    pub(crate) fn open(path: &Path, db: &Path, count: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path)?;
        let counter = Self {
            file,
            database: File::open(db)?,
            count,
        };
        counter.write()?;
        Ok(counter)
    }

    /// The number of the next transaction.
    pub(crate) fn next(&self) -> u64 {
        self.count + 1
    }

    /// The next transaction is flushed.
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
