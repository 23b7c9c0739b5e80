//! How many transactions were flushed, written down beside the database.
//!
//! A database file that is cut within its last segment opens without complaint and with its last
//! turns gone: sled takes the cut for a write that never finished. The count inside the database is
//! then behind the one in the file `flushed`, and that is said. After a kill the database is never
//! behind: the file is written after the flush. After a power cut it may be, and that too is said.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use crate::{
    keys,
    store::{Batch, Change, Store, StoreError, Table},
};

/// Where the count is inside the database.
const KEY: &[u8] = b"transactions";
/// Digits of a u64 and a line break: always the same length, so that writing needs no space.
const WIDTH: usize = 21;

/// Counts transactions in both places.
#[derive(Debug)]
pub(crate) struct Witness {
    file: File,
    count: u64,
    /// Transactions that were flushed once and are not in the database.
    pub(crate) n_lost: u64,
}

// === impl Witness ===

impl Witness {
    /// Compares the two counts; from now on they agree.
    pub(crate) fn open(path: &Path, store: &Store) -> Result<Self, WitnessError> {
        let stored = store.get(Table::Meta, KEY)?;
        let count = stored.and_then(|bytes| keys::read_u64(&bytes));
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(path)?;
        let seen = io::read_to_string(&file)?;
        let count = count.unwrap_or_default();
        // Unreadable is as if it were not there: it is a witness, not the log.
        let seen: u64 = seen.trim().parse().unwrap_or_default();
        let witness = Self {
            file,
            count,
            n_lost: seen.saturating_sub(count),
        };
        witness.write()?;
        Ok(witness)
    }

    /// Adds the next count to a transaction.
    pub(crate) fn join(&self, batch: &mut Batch) {
        let next = self.count + 1;
        let next = (&next.to_be_bytes()).into();
        batch.set(Table::Meta, KEY.into(), Change::Put(next));
    }

    /// The transaction is flushed.
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

/// Why the counts cannot be compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WitnessError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] io::Error),
}
