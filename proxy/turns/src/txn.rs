//! Several operations on their way into one transaction.
//!
//! Each operation works on a [`Txn`], which sees what is stored and what the operations before it in
//! the same batch have written. One that refuses leaves nothing behind.

use std::{borrow::Cow, ops::Bound};

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    codec::Codec,
    error::{FinishError, LogError, TakeError},
    keys,
    record::damaged,
    run,
    store::{Batch, Change, Key, Pair, Store, StoreError, Table, Value},
    tail::Cache,
    view::Funnel,
};

/// Bytes of a long value in one piece. Larger pages would become files that sled never syncs.
const PIECE: usize = 4_000;
/// Pieces that a 16-bit number can count; beyond it a value is refused.
const MAX_PIECES: usize = u16::MAX as usize;

/// Why an operation ended without a result.
#[derive(Debug)]
pub(crate) enum Fault<E = LogError> {
    /// The store failed: the whole batch is off.
    Store(StoreError),
    /// The operation refuses: the others go on.
    Refused(E),
}

/// Something to read from: what is stored, or that with the batch on top.
pub(crate) trait Source {
    /// One value.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, StoreError>;

    /// The last entry up to `key`.
    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Pair>, StoreError>;

    /// How values are packed.
    fn codec(&self) -> &Codec;

    /// What is stored, without the batch.
    fn store(&self) -> &Store;

    /// A value that was cut into pieces, unpacked.
    fn get_long(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let Some(first) = self.get(table, &keys::piece(key, 0))? else {
            return Ok(None);
        };
        let damaged = |why: String| {
            Fault::Refused(LogError::Damaged {
                what: format!("a value of {table:?}"),
                why,
            })
        };
        let Some((count, first)) = first.split_first_chunk::<2>() else {
            return Err(damaged("its first piece is empty".to_owned()));
        };
        let mut packed = Cow::Borrowed(first);
        for piece in 1..u16::from_be_bytes(*count) {
            match self.get(table, &keys::piece(key, piece))? {
                Some(bytes) => packed.to_mut().extend_from_slice(&bytes),
                None => return Err(damaged(format!("piece {piece} is missing"))),
            }
        }
        self.codec().unpack(&packed).map(Some).map_err(damaged)
    }

    /// The text of a record that the batch will write together with others.
    fn joined(&self, _: TurnId) -> Option<&[u8]> {
        None
    }

    /// The text of a turn's record.
    fn record(&self, id: TurnId) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(text) = self.joined(id) {
            return Ok(Some(text.to_vec()));
        }
        // Its value is under the first turn that was written with it.
        let last = keys::piece(&keys::turn(id), u16::MAX);
        let floor = self.floor(Table::Turns, &last)?;
        let first = floor.and_then(|(key, _)| keys::read_piece(&key));
        let Some((first, _)) = first.filter(|(first, _)| first.session == id.session) else {
            return Ok(None);
        };
        let Some(value) = self.get_long(Table::Turns, &keys::turn(first))? else {
            return Ok(None);
        };
        let n = (id.seq - first.seq) as usize;
        run::nth(value, n).map_err(|why| damaged(id, why))
    }

    /// A JSON value that was cut into pieces.
    fn get_json<T: serde::de::DeserializeOwned>(
        &self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<T>, Fault> {
        let bytes = self.get_long(table, key)?;
        let read = |bytes: Vec<u8>| serde_json::from_slice(&bytes);
        bytes.map(read).transpose().map_err(|error| {
            Fault::Refused(LogError::Damaged {
                what: format!("a value of {table:?}"),
                why: error.to_string(),
            })
        })
    }
}

/// The open database with what is needed to read it.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) store: Store,
    pub(crate) codec: Codec,
}

/// One operation's view, on top of the batch it joins.
#[derive(Debug)]
pub(crate) struct Txn<'a> {
    reader: &'a Reader,
    /// What is known about recent sessions; thrown away if the batch fails.
    pub(crate) cache: &'a mut Cache,
    batch: &'a mut Batch,
    undo: Vec<Undo>,
}

/// What stood in the batch before the operation changed it.
#[derive(Debug)]
enum Undo {
    Change(Table, Key, Option<Change>),
    Counts(Key, Option<Funnel>),
    Joined(TurnId),
}

// === impl Reader ===

impl Source for Reader {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.store.get(table, key)
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Pair>, StoreError> {
        let up_to = Bound::Included(key.into());
        let mut entries = self.store.range(table, Bound::Unbounded, up_to);
        entries.next_back().transpose()
    }

    fn codec(&self) -> &Codec {
        &self.codec
    }

    fn store(&self) -> &Store {
        &self.store
    }
}

// === impl Txn ===

impl Source for Txn<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, StoreError> {
        match self.batch.get(table, key) {
            Some(change) => Ok(change.value().cloned()),
            None => self.reader.store.get(table, key),
        }
    }

    fn floor(&self, table: Table, key: &[u8]) -> Result<Option<Pair>, StoreError> {
        let up_to = Bound::Included(key.into());
        let stored = self.reader.store.range(table, Bound::Unbounded, up_to);
        let is_as_stored = |entry: &Result<Pair, StoreError>| {
            let changed = |(key, _): &Pair| self.batch.get(table, key).is_some();
            !entry.as_ref().is_ok_and(changed)
        };
        let stored = stored.rev().find(is_as_stored).transpose()?;
        let put = self.batch.floor(table, key);
        let put = put.map(|(key, value)| (key.clone(), value.clone()));
        Ok(put.into_iter().chain(stored).max_by(|a, b| a.0.cmp(&b.0)))
    }

    fn joined(&self, id: TurnId) -> Option<&[u8]> {
        self.batch.runs.record(id)
    }

    fn codec(&self) -> &Codec {
        &self.reader.codec
    }

    fn store(&self) -> &Store {
        &self.reader.store
    }
}

impl<'a> Txn<'a> {
    pub(crate) fn new(reader: &'a Reader, cache: &'a mut Cache, batch: &'a mut Batch) -> Self {
        Self {
            reader,
            cache,
            batch,
            undo: Vec::new(),
        }
    }

    /// An agent's counts, by its key.
    pub(crate) fn counts(&self, key: &[u8]) -> Result<Funnel, Fault> {
        match self.batch.counts.get(key) {
            Some(counts) => Ok(counts.clone()),
            None => Ok(self.get_json(Table::Counts, key)?.unwrap_or_default()),
        }
    }

    /// Changes an agent's counts. They are written with the batch, by [`Txn::finish`].
    pub(crate) fn put_counts(&mut self, key: Key, counts: Funnel) {
        let before = self.batch.counts.insert(key.clone(), counts);
        self.undo.push(Undo::Counts(key, before));
    }

    /// Adds a new turn, which the batch writes together with others of its session. Until then its
    /// record can be read, and nothing else: nobody knows its id yet.
    pub(crate) fn join(&mut self, agent: &AgentId, id: TurnId, new: &run::New) {
        self.batch.grow(new.record.len());
        self.batch.runs.push(agent, id, new);
        self.undo.push(Undo::Joined(id));
    }

    /// Writes the turns that were joined and the counts that were changed; the last operation of each
    /// batch.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        std::mem::take(&mut self.batch.runs).write(self)?;
        for (key, counts) in std::mem::take(&mut self.batch.counts) {
            self.put_json(Table::Counts, &key, &counts)?;
        }
        Ok(())
    }

    /// Takes what the operation wrote out of the batch again.
    pub(crate) fn roll_back(self) {
        // What was written twice gets its first value back last.
        for undo in self.undo.into_iter().rev() {
            match undo {
                Undo::Change(table, key, before) => self.batch.set_back(table, key, before),
                Undo::Counts(key, Some(before)) => {
                    self.batch.counts.insert(key, before);
                }
                Undo::Counts(key, None) => {
                    self.batch.counts.remove(&key);
                }
                Undo::Joined(id) => self.batch.runs.pop(id),
            }
        }
    }

    /// One value that a decision rests on: the transaction checks that it is still so.
    pub(crate) fn get_guarded(
        &mut self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<Value>, StoreError> {
        // What this batch wrote itself cannot have been changed by another.
        if let Some(written) = self.batch.get(table, key) {
            return Ok(written.value().cloned());
        }
        let stored = self.reader.store.get(table, key)?;
        self.batch.guard(table, key.into(), stored.clone());
        Ok(stored)
    }

    pub(crate) fn put(&mut self, table: Table, key: Key, value: impl Into<Value>) {
        self.set(table, key, Change::Put(value.into()));
    }

    pub(crate) fn remove(&mut self, table: Table, key: Key) {
        self.set(table, key, Change::Remove);
    }

    fn set(&mut self, table: Table, key: Key, change: Change) {
        let before = self.batch.set(table, key.clone(), change);
        self.undo.push(Undo::Change(table, key, before));
    }

    /// Packs a value and cuts it into pieces of at most 4 KB. There is none in its place yet.
    pub(crate) fn put_long(&mut self, table: Table, key: &[u8], bytes: &[u8]) -> Result<(), Fault> {
        let too_large = || {
            Fault::Refused(LogError::TooLarge {
                what: "a value",
                n_bytes: bytes.len(),
                max: MAX_PIECES * PIECE,
            })
        };
        // The number of pieces, then the packed value.
        let mut packed = vec![0; 2];
        let codec = &self.reader.codec;
        codec.pack(bytes, &mut packed).map_err(|_| too_large())?;
        let count = (packed.len() - 2).div_ceil(PIECE);
        let count = u16::try_from(count).map_err(|_| too_large())?;
        packed[..2].copy_from_slice(&count.to_be_bytes());
        let (first, others) = packed.split_at(packed.len().min(2 + PIECE));
        let pieces = std::iter::once(first).chain(others.chunks(PIECE));
        for (piece, bytes) in (0..count).zip(pieces) {
            self.put(table, keys::piece(key, piece), bytes);
        }
        Ok(())
    }

    /// Removes all pieces of a long value; whether there was one.
    pub(crate) fn remove_long(&mut self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        let Some(first) = self.get(table, &keys::piece(key, 0))? else {
            return Ok(false);
        };
        let count = first
            .first_chunk::<2>()
            .map_or(1, |n| u16::from_be_bytes(*n));
        for piece in 0..count.max(1) {
            self.remove(table, keys::piece(key, piece));
        }
        Ok(true)
    }

    /// Puts a value in place of another, if there is one.
    pub(crate) fn put_json<T: serde::Serialize>(
        &mut self,
        table: Table,
        key: &[u8],
        value: &T,
    ) -> Result<(), Fault> {
        let bytes = serde_json::to_vec(value).map_err(|error| {
            Fault::Refused(LogError::Damaged {
                what: format!("a new value of {table:?}"),
                why: error.to_string(),
            })
        })?;
        self.remove_long(table, key)?;
        self.put_long(table, key, &bytes)
    }
}

// === impl Fault ===

impl<E> From<StoreError> for Fault<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Self {
        Self::Refused(error)
    }
}

macro_rules! widen {
    ($error:ty) => {
        impl From<Fault> for Fault<$error> {
            fn from(fault: Fault) -> Self {
                match fault {
                    Fault::Store(error) => Self::Store(error),
                    Fault::Refused(error) => Self::Refused(error.into()),
                }
            }
        }
    };
}
widen!(TakeError);
widen!(FinishError);

#[cfg(test)]
mod tests {
    use super::*;

    fn with_txn<T>(reader: &Reader, f: impl FnOnce(&mut Txn<'_>) -> T) -> T {
        let (mut cache, mut batch) = (Cache::default(), Batch::default());
        let mut txn = Txn::new(reader, &mut cache, &mut batch);
        let result = f(&mut txn);
        reader.store.apply(&batch).unwrap();
        result
    }

    #[test]
    fn an_operation_that_is_rolled_back_leaves_what_was_there_before() {
        let dir = tempfile::tempdir().unwrap();
        let reader = Reader {
            store: Store::open(dir.path(), 8 << 20).unwrap(),
            codec: Codec::new().unwrap(),
        };
        with_txn(&reader, |txn| {
            txn.put(Table::Meta, b"stored".into(), b"1");
        });
        let (mut cache, mut batch) = (Cache::default(), Batch::default());
        let mut txn = Txn::new(&reader, &mut cache, &mut batch);
        txn.put(Table::Meta, b"before".into(), b"1");
        txn.put_counts(b"agent".into(), Funnel::default());
        let mut txn = Txn::new(&reader, &mut cache, &mut batch);
        for value in [b"2", b"3"] {
            txn.put(Table::Meta, b"before".into(), value);
            txn.put(Table::Meta, b"new".into(), value);
        }
        txn.remove(Table::Meta, b"stored".into());
        let turns = 7;
        let counts = || Funnel {
            turns,
            ..Funnel::default()
        };
        txn.put_counts(b"agent".into(), counts());
        txn.put_counts(b"other".into(), counts());
        txn.roll_back();
        let txn = Txn::new(&reader, &mut cache, &mut batch);
        let get = |key: &[u8]| txn.get(Table::Meta, key).unwrap();
        assert_eq!(get(b"before"), Some(b"1".into()));
        assert_eq!((get(b"new"), get(b"stored")), (None, Some(b"1".into())));
        assert_eq!(txn.counts(b"agent").unwrap(), Funnel::default());
        assert_eq!(batch.counts.len(), 1);
    }

    #[test]
    fn a_long_value_comes_back_whole_and_no_piece_is_over_4_kb() {
        let dir = tempfile::tempdir().unwrap();
        let reader = Reader {
            store: Store::open(dir.path(), 8 << 20).unwrap(),
            codec: Codec::new().unwrap(),
        };
        // Incompressible, so that it really is cut.
        let mut long = vec![0; 50_000];
        blake3::Hasher::new().finalize_xof().fill(&mut long);
        with_txn(&reader, |txn| {
            txn.put_long(Table::Turns, b"k", &long).unwrap();
        });
        assert_eq!(
            reader.get_long(Table::Turns, b"k").unwrap(),
            Some(long.clone())
        );
        let (from, to) = crate::keys::under(b"k");
        let sizes: Vec<usize> = reader
            .store
            .range(Table::Turns, from.clone(), to.clone())
            .map(|pair| pair.unwrap().1.len())
            .collect();
        assert!(sizes.len() > 10 && sizes.iter().all(|size| *size <= 4_096));

        with_txn(&reader, |txn| {
            txn.remove_long(Table::Turns, b"k").unwrap();
            txn.put_long(Table::Turns, b"k", b"short").unwrap();
        });
        assert_eq!(reader.store.range(Table::Turns, from, to).count(), 1);
    }
}
