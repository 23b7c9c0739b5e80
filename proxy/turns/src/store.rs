//! sled, alone: nothing of it leaves this module but its byte string, [`Key`] and [`Value`].
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

use crate::{run::Runs, view::Funnel};

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

/// Cheap to clone; up to 22 bytes it takes no memory but its own.
pub(crate) type Key = sled::IVec;
/// As a [`Key`].
pub(crate) type Value = sled::IVec;
pub(crate) type Pair = (Key, Value);

/// What one transaction writes, and what must still hold when it does.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    writes: Places<Change>,
    /// Stored values, or that there is none.
    guards: Places<Option<Value>>,
    /// The agents' counts, by their keys: they change with every turn and are written once.
    pub(crate) counts: BTreeMap<Key, Funnel>,
    /// New turns, which are written together.
    pub(crate) runs: Runs,
    n_bytes: usize,
}

/// By table and key.
type Places<T> = [BTreeMap<Key, T>; NAMES.len()];

/// What becomes of one place.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Put(Value),
    Remove,
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Store {
    db: sled::Db,
    trees: Vec<sled::Tree>,
}

// === impl Batch ===

impl Batch {
    /// Counts what is to be written later.
    pub(crate) fn grow(&mut self, n_bytes: usize) {
        self.n_bytes += n_bytes;
    }

    /// Changes a place; what the batch did to it before.
    pub(crate) fn set(&mut self, table: Table, key: Key, change: Change) -> Option<Change> {
        self.grow(key.len() + change.value().map_or(0, |value| value.len()));
        self.writes[table as usize].insert(key, change)
    }

    /// Takes back what was set since [`Batch::set`] returned `before`.
    pub(crate) fn set_back(&mut self, table: Table, key: Key, before: Option<Change>) {
        let places = &mut self.writes[table as usize];
        match before {
            Some(change) => places.insert(key, change),
            None => places.remove(&key),
        };
    }

    /// What the batch does to a place, if anything.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<&Change> {
        self.writes[table as usize].get(key)
    }

    /// The last place up to `key` that the batch puts something in.
    pub(crate) fn floor(&self, table: Table, key: &[u8]) -> Option<(&Key, &Value)> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let mut places = self.writes[table as usize].range::<[u8], _>(up_to).rev();
        places.find_map(|(key, change)| Some((key, change.value()?)))
    }

    /// Has the transaction check that a stored value, which a decision was made on, is still so.
    pub(crate) fn guard(&mut self, table: Table, key: Key, stored: Option<Value>) {
        self.guards[table as usize].entry(key).or_insert(stored);
    }

    /// Whether it writes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.iter().all(BTreeMap::is_empty)
    }

    /// Bytes that were put into it.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }
}

// === impl Change ===

impl Change {
    /// What is there afterwards.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Self::Put(value) => Some(value),
            Self::Remove => None,
        }
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
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.tree(table).get(key)?)
    }

    /// The pairs between two keys, in order; may be walked from either end.
    pub(crate) fn range(
        &self,
        table: Table,
        from: Bound<Key>,
        to: Bound<Key>,
    ) -> impl DoubleEndedIterator<Item = Result<Pair, StoreError>> + use<> {
        let pairs = self.tree(table).range::<Key, _>((from, to));
        pairs.map(|pair| pair.map_err(StoreError::from))
    }

    /// Writes a batch in one transaction: all of it or, if a guard does not hold, nothing.
    ///
    /// Durable against a kill only after [`Store::flush`].
    pub(crate) fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        // The closure may run more than once: it has no effect but on the transaction.
        let write = |trees: &Vec<TransactionalTree>| {
            for (table, tree) in trees.iter().enumerate() {
                for (key, expected) in &batch.guards[table] {
                    if tree.get(key)? != *expected {
                        return abort(NAMES[table]);
                    }
                }
            }
            for (tree, changes) in trees.iter().zip(&batch.writes) {
                for (key, change) in changes {
                    match change {
                        Change::Put(value) => tree.insert(key, value)?,
                        Change::Remove => tree.remove(key)?,
                    };
                }
            }
            Ok::<(), ConflictableTransactionError<&'static str>>(())
        };
        self.trees[..]
            .transaction(write)
            .map_err(|error| match error {
                TransactionError::Abort(table) => StoreError::Changed { table },
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
        batch.set(Table::Turns, key.into(), Change::Put(value.into()));
        batch
    }

    #[test]
    fn a_broken_guard_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let mut batch = put(b"a", b"1");
        batch.guard(Table::States, b"a".into(), Some(b"x".into()));
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
                Bound::Included(b"a".into()),
                Bound::Excluded(b"b".into()),
            )
        };
        assert_eq!(range().count(), 2);
        assert_eq!(range().next_back().unwrap().unwrap().0, b"a2");
    }
}
