//! How many transactions were flushed, written down beside the database.
//!
//! A database file that is cut within its last segment opens without complaint and with its last
//! turns gone: sled takes the cut for a write that never finished. The journal's last number is then
//! behind the one in the file `flushed`, and that is said. After a kill the database is never behind:
//! the file is written after the flush. After a power cut it may be, and that too is said.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Digits of a u64 and a line break: always the same length, so that writing needs no space.
const WIDTH: usize = 21;

/// Counts flushed transactions in a file.
#[derive(Debug)]
pub(crate) struct FlushCounter {
    file: File,
    count: u64,
    /// Transactions that were flushed once and are not in the database.
    pub(crate) n_lost: u64,
}

// === impl FlushCounter ===

impl FlushCounter {
    /// Compares the file with the database's count; from now on they agree.
    pub(crate) fn open(path: &Path, count: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path)?;
        // Unreadable is as if it were not there: it is a witness, not the log.
        let seen = io::read_to_string(&file).unwrap_or_default();
        let seen: u64 = seen.trim().parse().unwrap_or_default();
        let counter = Self {
            file,
            count,
            n_lost: seen.saturating_sub(count),
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
        let count = format!("{:0width$}\n", self.count, width = WIDTH - 1);
        self.file.write_all_at(count.as_bytes(), 0)
    }
}
