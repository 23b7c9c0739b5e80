//! The only module that uses sled. Others see only its byte string, [`Bytes`].
//!
//! The interface is small on purpose, so that another engine could replace sled: `open`, `get`, `range`, `transaction`
//! over all tables, `flush`. README.md gives the reasons for this way of using it.

use std::{
    cell::Cell,
    fs::{File, TryLockError},
    io,
    ops::RangeBounds,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use sled::{
    Transactional as _,
    transaction::{
        ConflictableTransactionError, TransactionError, TransactionalTree,
        UnabortableTransactionError,
    },
};

/// sled's own flusher is only a backstop (it also runs its garbage collection). Durability comes from our own flush
/// after each transaction.
const FLUSHER_MS: u64 = 200;

/// How long a closed database may stay locked. Its last writes take a moment. If it is locked for longer, another
/// process has it.
const LETS_GO: Duration = Duration::from_secs(1);

/// The tables of the log. README.md describes their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Table {
    Sessions,
    Names,
    Turns,
    Texts,
    TextUsers,
    Tokens,
    Verdicts,
    States,
    Index,
    Uses,
    Journal,
    Counts,
    Steps,
    OpenSteps,
    Serving,
    Statistics,
    Lessons,
    Rollouts,
}

/// Names of the tables on disk, in the order of [`Table`].
const NAMES: &str = "sessions names turns texts text_users tokens verdicts states index uses \
    journal counts steps open_steps serving statistics lessons rollouts";

/// The table that every database of sled has.
const SLEDS_OWN: &str = "__sled__default";

/// Why the store failed. After any of these errors, this handle is unusable: drop it and open the store again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("another process has it open")]
    Held,
    #[error("no space left on its disk")]
    Full,
    #[error("{0}")]
    NotWritable(io::Error),
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("its database has tables that are not this program's: {0}")]
    Foreign(String),
    #[error("its folder was removed or replaced while it was open")]
    Removed,
    #[error("{0}")]
    Other(String),
}

pub(crate) type StoreResult<T> = Result<T, StoreError>;

/// It is cheap to clone. Up to 22 bytes are stored inline.
pub(crate) type Bytes = sled::IVec;

/// A source of data: the stored data, or a transaction with its own writes.
pub(crate) trait StoreSource {
    fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<Bytes>>;
}

#[derive(Debug)]
pub(crate) struct Store {
    db: sled::Db,
    trees: Vec<sled::Tree>,
}

/// A transaction over all tables. It sees its own writes. It cannot iterate over a range.
pub(crate) struct StoreTxn<'a> {
    trees: &'a [TransactionalTree],
}

// === impl Store ===

impl Store {
    /// Opens or creates the database in `path` with a page cache of `cache` bytes.
    ///
    /// A truncated file makes sled panic. The panic is caught and becomes [`StoreError::Damaged`].
    pub(crate) fn open(path: &Path, cache: u64) -> StoreResult<Self> {
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(cache)
            .flush_every_ms(Some(FLUSHER_MS))
            .mode(sled::Mode::LowSpace);
        let open = || -> sled::Result<StoreResult<Self>> {
            let db = config.open()?;
            if let Some(names) = foreign(&db) {
                return Ok(Err(StoreError::Foreign(names)));
            }
            let trees = NAMES
                .split(' ')
                .map(|name| db.open_tree(name))
                .collect::<sled::Result<_>>()?;
            Ok(Ok(Self { db, trees }))
        };
        match catch_unwind(AssertUnwindSafe(open)) {
            Ok(opened) => opened.map_err(StoreError::from).flatten(),
            Err(panic) => Err(StoreError::Damaged(panic_text(&*panic))),
        }
    }

    /// Waits until the database in `path` is free after its store was dropped, because sled's own threads may hold the
    /// file for a moment.
    pub(crate) fn wait_until_free(path: &Path) {
        Self::is_held(path);
    }

    /// Returns whether another process has the database in `path` open, and not only while closing it.
    pub(crate) fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path.join("db")) else {
            return false;
        };
        let began = Instant::now();
        loop {
            let is_held = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if !is_held || began.elapsed() >= LETS_GO {
                return is_held;
            }
            thread::yield_now();
        }
    }

    pub(crate) fn was_recovered(&self) -> bool {
        self.db.was_recovered()
    }

    /// Returns the pairs between two keys, in order. The iterator works from both ends.
    ///
    /// Do not call it within a transaction, because sled would wait for itself.
    pub(crate) fn range<R: RangeBounds<Bytes>>(
        &self,
        table: Table,
        keys: R,
    ) -> impl DoubleEndedIterator<Item = StoreResult<(Bytes, Bytes)>> + use<R> {
        let pairs = self.tree(table).range::<Bytes, _>(keys);
        pairs.map(|pair| pair.map_err(StoreError::from))
    }

    /// Runs a transaction. Either everything is written or, if it fails, nothing.
    ///
    /// It is durable against a kill only after [`Store::flush`].
    pub(crate) fn transaction<T>(
        &self,
        write: impl FnOnce(&StoreTxn<'_>) -> StoreResult<T>,
    ) -> StoreResult<T> {
        // sled would run the closure again after a conflict. One thread owns the store, so there is no conflict.
        let write = Cell::new(Some(write));
        let run = |trees: &Vec<TransactionalTree>| {
            let again = || StoreError::Other("sled ran a transaction twice".to_owned());
            let write = write.take().ok_or_else(again);
            let result = write.and_then(|write| write(&StoreTxn { trees }));
            result.map_err(ConflictableTransactionError::Abort)
        };
        self.trees[..]
            .transaction(run)
            .map_err(|error| match error {
                TransactionError::Abort(error) => error,
                TransactionError::Storage(error) => error.into(),
            })
    }

    /// Copies all data into another store, which is empty.
    pub(crate) fn copy_to(&self, other: &Self) -> StoreResult<()> {
        for (tree, to) in self.trees.iter().zip(&other.trees) {
            for pair in tree {
                let (key, value) = pair?;
                to.insert(key, value)?;
            }
        }
        Ok(())
    }

    /// Copies all readable data into another store, which is empty. Returns the number of gaps.
    ///
    /// An unreadable page hides only its own content.
    pub(crate) fn copy_readable_to(&self, other: &Self) -> StoreResult<u64> {
        let trees = self.trees.iter().zip(&other.trees);
        let gaps = trees.map(|(tree, to)| {
            each_readable(tree, |key, value| {
                to.insert(key, value)?;
                Ok(())
            })
        });
        gaps.sum()
    }

    /// Returns the number of gaps: unreadable pages, or runs of them.
    pub(crate) fn n_gaps(&self) -> StoreResult<u64> {
        self.trees
            .iter()
            .map(|tree| each_readable(tree, |_, _| Ok(())))
            .sum()
    }

    /// Hands everything written so far to the operating system. Afterwards it is safe from `kill -9`.
    pub(crate) fn flush(&self) -> StoreResult<()> {
        self.db.flush()?;
        Ok(())
    }

    fn tree(&self, table: Table) -> &sled::Tree {
        &self.trees[table as usize]
    }
}

impl StoreSource for Store {
    fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<Bytes>> {
        Ok(self.tree(table).get(key)?)
    }
}

// === impl StoreTxn ===

impl StoreTxn<'_> {
    pub(crate) fn put(&self, table: Table, key: &[u8], value: impl Into<Bytes>) -> StoreResult<()> {
        self.tree(table).insert(key, value.into())?;
        Ok(())
    }

    pub(crate) fn remove(&self, table: Table, key: &[u8]) -> StoreResult<()> {
        self.tree(table).remove(key)?;
        Ok(())
    }

    fn tree(&self, table: Table) -> &TransactionalTree {
        &self.trees[table as usize]
    }
}

impl StoreSource for StoreTxn<'_> {
    fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<Bytes>> {
        Ok(self.tree(table).get(key)?)
    }
}

// === impl StoreError ===

impl From<UnabortableTransactionError> for StoreError {
    fn from(error: UnabortableTransactionError) -> Self {
        match error {
            UnabortableTransactionError::Storage(error) => error.into(),
            UnabortableTransactionError::Conflict => {
                Self::Other("a transaction met another".to_owned())
            }
        }
    }
}

impl From<sled::Error> for StoreError {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => error.into(),
            error @ (sled::Error::Corruption { .. } | sled::Error::ReportableBug(_)) => {
                Self::Damaged(error.to_string())
            }
            error @ (sled::Error::CollectionNotFound(_) | sled::Error::Unsupported(_)) => {
                Self::Other(error.to_string())
            }
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A write beyond RLIMIT_FSIZE is EFBIG, and one beyond a quota EDQUOT. Both are treated like a full disk.
            io::ErrorKind::StorageFull
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::AlreadyExists => Self::NotWritable(error),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Self::Damaged(error.to_string())
            }
            // The page is in a separate file.
            io::ErrorKind::NotFound => Self::Damaged("a file in blobs/ is missing".to_owned()),
            // sled gives its failed flock no error kind of its own.
            _ if error.to_string().contains("could not acquire lock") => Self::Held,
            _ => Self::Other(error.to_string()),
        }
    }
}

fn each_readable(
    tree: &sled::Tree,
    mut each: impl FnMut(Bytes, Bytes) -> sled::Result<()>,
) -> StoreResult<u64> {
    let (mut from, mut n_gaps) = (Vec::new(), 0);
    loop {
        let (mut gap, mut n_read) = (None, 0_u64);
        for pair in tree.range(from.clone()..) {
            match pair.map_err(StoreError::from) {
                Ok((key, value)) => {
                    from = [&key[..], &[0]].concat();
                    each(key, value)?;
                    n_read += 1;
                }
                Err(StoreError::Damaged(why)) => {
                    gap = Some(why);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let Some(why) = gap else {
            return Ok(n_gaps);
        };
        // After the last gap, nothing was read. Continuing key by key could take forever.
        if n_gaps > 0 && n_read == 0 {
            break;
        }
        n_gaps += 1;
        let table = String::from_utf8_lossy(&tree.name()).into_owned();
        tracing::error!(%table, %why, "a page of the turn log does not read");
        match behind_gap(tree, &from)?.filter(|next| *next > from) {
            Some(next) => from = next,
            None => break,
        }
    }
    // The search finds no readable page. Pairs after the last gap are read backwards from the end.
    for pair in tree.range(from..).rev() {
        match pair.map_err(StoreError::from) {
            Ok((key, value)) => each(key, value)?,
            Err(StoreError::Damaged(_)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(n_gaps)
}

/// Returns the first key in a readable page after an unreadable one, or `None` if the unreadable one is the last.
///
/// Pages hold ranges of keys. The smallest key after the gap is searched byte by byte.
fn behind_gap(tree: &sled::Tree, from: &[u8]) -> StoreResult<Option<Vec<u8>>> {
    /// This is longer than the keys at which pages begin.
    const LONGEST: usize = 64;
    let is_in_gap = |key: &[u8]| match tree.get(key).map_err(StoreError::from) {
        Ok(_) => Ok(false),
        Err(StoreError::Damaged(_)) => Ok(true),
        Err(error) => Err(error),
    };
    let (mut beginning, mut behind) = (Vec::new(), None);
    while beginning.len() < LONGEST {
        // The first byte of a key after the gap, out of 256.
        let (mut least, mut most) = (0_u16, 256_u16);
        while least < most {
            let middle = least.midpoint(most);
            let key = [&beginning[..], &[middle.to_le_bytes()[0]]].concat();
            if key.as_slice() < from || is_in_gap(&key)? {
                least = middle + 1;
            } else {
                most = middle;
                behind = Some(key);
            }
        }
        match least.checked_sub(1) {
            Some(last) => beginning.push(last.to_le_bytes()[0]),
            None => break,
        }
    }
    Ok(behind)
}

/// Returns the names of tables that are not ours, if there are any: another format, or another program's database.
fn foreign(db: &sled::Db) -> Option<String> {
    let tables = db.tree_names();
    let names = tables.iter().map(|name| String::from_utf8_lossy(name));
    let is_ours = |name: &str| name == SLEDS_OWN || NAMES.split(' ').any(|ours| ours == name);
    let foreign: Vec<_> = names.filter(|name| !is_ours(name)).collect();
    (!foreign.is_empty()).then(|| foreign.join(", "))
}

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

    #[test]
    fn a_transaction_that_fails_writes_nothing_and_reads_what_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let failed = store.transaction(|txn| {
            txn.put(Table::Turns, b"a", b"1")?;
            assert_eq!(txn.get(Table::Turns, b"a")?, Some(b"1".into()));
            Err::<(), _>(StoreError::Full)
        });
        assert!(matches!(failed, Err(StoreError::Full)));
        assert_eq!(store.get(Table::Turns, b"a").unwrap(), None);
    }

    #[test]
    fn a_second_opener_is_told_that_it_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let second = Store::open(dir.path(), 8 << 20);
        assert!(matches!(second, Err(StoreError::Held)));
        drop(store);
        Store::wait_until_free(dir.path());
        assert!(open(dir.path()).was_recovered());
    }

    #[test]
    fn a_range_is_walked_from_either_end() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let put = |txn: &StoreTxn<'_>| {
            let mut keys = [b"a1", b"a2", b"b1"].into_iter();
            keys.try_for_each(|key| txn.put(Table::Turns, key, b""))
        };
        store.transaction(put).unwrap();
        let range = || {
            let (from, to): (Bytes, Bytes) = (b"a".into(), b"b".into());
            store.range(Table::Turns, from..to)
        };
        assert_eq!(range().count(), 2);
        assert_eq!(range().next_back().unwrap().unwrap().0, b"a2");
    }
}
