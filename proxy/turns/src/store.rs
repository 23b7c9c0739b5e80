//! sled, alone: nothing of it leaves this module.
//!
//! Small on purpose, so that another engine fits behind the same surface: `open`, `get`, `range`,
//! `apply` (one transaction over all tables), `flush`. What was measured about sled 0.34.7, and why
//! it is used in just this way, stands in docs/turn-log.md.

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use sled::{
    Transactional as _,
    transaction::{ConflictableTransactionError, TransactionError, TransactionalTree, abort},
};

use crate::view::Funnel;

/// sled's flusher is only a backstop here (it also runs its garbage collection); the promise is our
/// own flush after each transaction.
const FLUSHER_MS: u64 = 200;

/// How long a database that was let go of may stay locked: its last writes take a moment, and longer than
/// this somebody else has it.
const LETS_GO: Duration = Duration::from_secs(1);

/// The tables of the log; docs/turn-log.md says what each holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Table {
    Sessions,
    Names,
    Turns,
    Blobs,
    Tokens,
    Verdicts,
    States,
    Index,
    Times,
    Replies,
    Counts,
    Steps,
    OpenSteps,
    Serving,
    Meta,
}

/// Names of the tables on disk, in the order of [`Table`].
const NAMES: [&str; 15] = [
    "sessions",
    "names",
    "turns",
    "blobs",
    "tokens",
    "verdicts",
    "states",
    "index",
    "times",
    "replies",
    "counts",
    "steps",
    "open_steps",
    "serving",
    "meta",
];

/// Why the store failed. Whatever it is, this handle is finished: drop it and open again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Another process holds the lock.
    #[error("another process has it open")]
    Held,
    /// No space left.
    #[error("no space left on its disk")]
    Full,
    /// The folder or the file system does not let us write.
    #[error("{0}")]
    NotWritable(io::Error),
    /// Its file does not read back.
    #[error("damaged: {0}")]
    Damaged(String),
    /// A guard of a transaction did not hold: somebody else wrote.
    #[error("table {table} was changed by somebody else")]
    Changed {
        /// Which table.
        table: &'static str,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

pub(crate) type Key = Vec<u8>;
pub(crate) type Pair = (Key, Vec<u8>);

/// What one transaction writes, and what must still hold when it does.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// New values; `None` removes.
    pub(crate) writes: BTreeMap<(Table, Key), Option<Vec<u8>>>,
    /// Values that decisions were made on, checked again inside the transaction.
    pub(crate) guards: BTreeMap<(Table, Key), Option<Vec<u8>>>,
    /// The agents' counts, by their keys: they change with every turn and are written once.
    pub(crate) counts: BTreeMap<Key, Funnel>,
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Store {
    db: sled::Db,
    trees: Vec<sled::Tree>,
}

// === impl Table ===

impl Table {
    fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

// === impl Store ===

impl Store {
    /// Opens or makes the database in `path` with a page cache of `cache` bytes.
    ///
    /// A truncated file makes sled panic; that is caught and is [`StoreError::Damaged`].
    pub(crate) fn open(path: &Path, cache: u64) -> Result<Self, StoreError> {
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(cache)
            .flush_every_ms(Some(FLUSHER_MS))
            .mode(sled::Mode::LowSpace);
        let open = || -> sled::Result<Self> {
            let db = config.open()?;
            let trees = NAMES.iter().map(|name| db.open_tree(name));
            let trees = trees.collect::<sled::Result<_>>()?;
            Ok(Self { db, trees })
        };
        match catch_unwind(AssertUnwindSafe(open)) {
            Ok(opened) => opened.map_err(StoreError::from),
            Err(panic) => Err(StoreError::Damaged(panic_text(&*panic))),
        }
    }

    /// Whether there is a database in `path`. sled would make an empty one where there is none.
    pub(crate) fn exists(path: &Path) -> bool {
        path.join("db").is_file()
    }

    /// Waits until the database in `path` is free, once its store is dropped: sled's own threads may
    /// still hold the file for a moment.
    pub(crate) fn wait_until_free(path: &Path) {
        let Ok(file) = File::open(path.join("db")) else {
            return;
        };
        let began = Instant::now();
        let is_held = || matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        while is_held() && began.elapsed() < LETS_GO {
            thread::yield_now();
        }
    }

    /// Whether it had data before this opening.
    pub(crate) fn was_recovered(&self) -> bool {
        self.db.was_recovered()
    }

    /// One value.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.tree(table).get(key)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// The pairs between two keys, in order; may be walked from either end.
    pub(crate) fn range(
        &self,
        table: Table,
        from: Bound<Key>,
        to: Bound<Key>,
    ) -> impl DoubleEndedIterator<Item = Result<Pair, StoreError>> + use<> {
        let pairs = self.tree(table).range::<Key, _>((from, to));
        pairs.map(|pair| {
            let (key, value) = pair?;
            Ok((key.to_vec(), value.to_vec()))
        })
    }

    /// Writes a batch in one transaction: all of it or, if a guard does not hold, nothing.
    ///
    /// Durable against a kill only after [`Store::flush`].
    pub(crate) fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        // The closure may run more than once: it has no effect but on the transaction.
        let write = |trees: &Vec<TransactionalTree>| {
            for ((table, key), expected) in &batch.guards {
                let found = trees[*table as usize].get(key)?;
                if found.as_deref() != expected.as_deref() {
                    return abort(*table);
                }
            }
            for ((table, key), value) in &batch.writes {
                let tree = &trees[*table as usize];
                match value {
                    Some(value) => tree.insert(key.as_slice(), value.as_slice())?,
                    None => tree.remove(key.as_slice())?,
                };
            }
            Ok::<(), ConflictableTransactionError<Table>>(())
        };
        self.trees[..]
            .transaction(write)
            .map_err(|error| match error {
                TransactionError::Abort(table) => StoreError::Changed {
                    table: table.name(),
                },
                TransactionError::Storage(error) => error.into(),
            })
    }

    /// Hands everything written so far to the operating system: safe from kill -9 afterwards.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.db.flush()?;
        Ok(())
    }

    /// Bytes that the database takes on disk. It never shrinks.
    pub(crate) fn size_on_disk(&self) -> Result<u64, StoreError> {
        Ok(self.db.size_on_disk()?)
    }

    fn tree(&self, table: Table) -> &sled::Tree {
        &self.trees[table as usize]
    }
}

// === impl StoreError ===

impl From<sled::Error> for StoreError {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => Self::from_io(error),
            error @ (sled::Error::Corruption { .. } | sled::Error::ReportableBug(_)) => {
                Self::Damaged(error.to_string())
            }
            error @ (sled::Error::CollectionNotFound(_) | sled::Error::Unsupported(_)) => {
                Self::Other(error.to_string())
            }
        }
    }
}

impl StoreError {
    fn from_io(error: io::Error) -> Self {
        match error.kind() {
            // A write past RLIMIT_FSIZE is EFBIG: to us the disk is as full.
            io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge => Self::Full,
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists => Self::NotWritable(error),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Self::Damaged(error.to_string())
            }
            // sled gives its failed flock no kind of its own.
            _ if error.to_string().contains("could not acquire lock") => Self::Held,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// What a caught panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Store {
        Store::open(dir, 8 << 20).unwrap()
    }

    fn put(key: &[u8], value: &[u8]) -> Batch {
        let mut batch = Batch::default();
        let at = (Table::Turns, key.to_vec());
        batch.writes.insert(at, Some(value.to_vec()));
        batch
    }

    #[test]
    fn a_broken_guard_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let mut batch = put(b"a", b"1");
        batch
            .guards
            .insert((Table::States, b"a".to_vec()), Some(b"x".to_vec()));
        let error = store.apply(&batch).unwrap_err();
        assert!(matches!(error, StoreError::Changed { table: "states" }));
        assert_eq!(store.get(Table::Turns, b"a").unwrap(), None);
    }

    #[test]
    fn a_second_opener_is_told_that_it_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        assert!(matches!(
            Store::open(dir.path(), 8 << 20),
            Err(StoreError::Held)
        ));
        drop(store);
        assert!(open(dir.path()).was_recovered());
    }

    #[test]
    fn a_range_is_walked_from_either_end() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        for key in [b"a1", b"a2", b"b1"] {
            store.apply(&put(key, b"")).unwrap();
        }
        let range = || {
            store.range(
                Table::Turns,
                Bound::Included(b"a".to_vec()),
                Bound::Excluded(b"b".to_vec()),
            )
        };
        assert_eq!(range().count(), 2);
        assert_eq!(range().next_back().unwrap().unwrap().0, b"a2");
    }
}
