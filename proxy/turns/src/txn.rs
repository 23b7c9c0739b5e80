//! Several operations on their way into one transaction.
//!
//! Each operation works on a [`Txn`], which sees what is stored and what the operations before it in
//! the same batch have written. One that refuses leaves nothing behind.

use std::collections::BTreeMap;

use crate::{
    codec::Codec,
    error::{FinishError, LogError, TakeError},
    store::{Batch, Key, Store, StoreError, Table},
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
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// How values are packed.
    fn codec(&self) -> &Codec;

    /// What is stored, without the batch.
    fn store(&self) -> &Store;

    /// A value that was cut into pieces, unpacked.
    fn get_long(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let Some(first) = self.get(table, &piece_key(key, 0))? else {
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
        let mut packed = first.to_vec();
        for piece in 1..u16::from_be_bytes(*count) {
            match self.get(table, &piece_key(key, piece))? {
                Some(bytes) => packed.extend(bytes),
                None => return Err(damaged(format!("piece {piece} is missing"))),
            }
        }
        self.codec().unpack(&packed).map(Some).map_err(damaged)
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
    writes: BTreeMap<(Table, Key), Option<Vec<u8>>>,
    guards: BTreeMap<(Table, Key), Option<Vec<u8>>>,
    counts: BTreeMap<Key, Funnel>,
}

// === impl Reader ===

impl Source for Reader {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(table, key)
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
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let at = (table, key.to_vec());
        let written = self.writes.get(&at).or_else(|| self.batch.writes.get(&at));
        match written {
            Some(value) => Ok(value.clone()),
            None => self.reader.store.get(table, key),
        }
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
            writes: BTreeMap::new(),
            guards: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// An agent's counts, by its key.
    pub(crate) fn counts(&self, key: &[u8]) -> Result<Funnel, Fault> {
        let known = self.counts.get(key).or_else(|| self.batch.counts.get(key));
        match known {
            Some(counts) => Ok(counts.clone()),
            None => Ok(self.get_json(Table::Counts, key)?.unwrap_or_default()),
        }
    }

    /// Changes an agent's counts. They are written with the batch, by [`Txn::write_counts`].
    pub(crate) fn put_counts(&mut self, key: Key, counts: Funnel) {
        self.counts.insert(key, counts);
    }

    /// Writes the counts that the batch has changed; the last operation of each batch.
    pub(crate) fn write_counts(&mut self) -> Result<(), Fault> {
        for (key, counts) in std::mem::take(&mut self.batch.counts) {
            self.put_json(Table::Counts, &key, &counts)?;
        }
        Ok(())
    }

    /// Joins the batch.
    pub(crate) fn commit(self) {
        for (at, expected) in self.guards {
            self.batch.guards.entry(at).or_insert(expected);
        }
        self.batch.writes.extend(self.writes);
        self.batch.counts.extend(self.counts);
    }

    /// One value that a decision rests on: the transaction checks that it is still so.
    pub(crate) fn get_guarded(
        &mut self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.get(table, key)?;
        let at = (table, key.to_vec());
        // What this batch wrote itself cannot have been changed by another.
        if !self.writes.contains_key(&at) && !self.batch.writes.contains_key(&at) {
            self.guards.insert(at, value.clone());
        }
        Ok(value)
    }

    pub(crate) fn put(&mut self, table: Table, key: Key, value: Vec<u8>) {
        self.writes.insert((table, key), Some(value));
    }

    pub(crate) fn remove(&mut self, table: Table, key: Key) {
        self.writes.insert((table, key), None);
    }

    /// Packs a value and cuts it into pieces of at most 4 KB; pieces of an older one go.
    pub(crate) fn put_long(&mut self, table: Table, key: &[u8], bytes: &[u8]) -> Result<(), Fault> {
        self.remove_long(table, key)?;
        let too_large = || {
            Fault::Refused(LogError::TooLarge {
                what: "a value",
                n_bytes: bytes.len(),
                max: MAX_PIECES * PIECE,
            })
        };
        let packed = self.reader.codec.pack(bytes).map_err(|_| too_large())?;
        let pieces = packed.chunks(PIECE);
        let count = u16::try_from(pieces.len()).map_err(|_| too_large())?;
        for (piece, bytes) in (0..count).zip(pieces) {
            let mut value = Vec::with_capacity(bytes.len() + 2);
            if piece == 0 {
                value.extend(count.to_be_bytes());
            }
            value.extend(bytes);
            self.put(table, piece_key(key, piece), value);
        }
        Ok(())
    }

    /// Removes all pieces of a long value; whether there was one.
    pub(crate) fn remove_long(&mut self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        let Some(first) = self.get(table, &piece_key(key, 0))? else {
            return Ok(false);
        };
        let count = first
            .first_chunk::<2>()
            .map_or(1, |n| u16::from_be_bytes(*n));
        for piece in 0..count.max(1) {
            self.remove(table, piece_key(key, piece));
        }
        Ok(true)
    }

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
        self.put_long(table, key, &bytes)
    }
}

/// The key of one piece of a long value.
pub(crate) fn piece_key(key: &[u8], piece: u16) -> Key {
    let mut at = key.to_vec();
    at.extend(piece.to_be_bytes());
    at
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
        txn.commit();
        reader.store.apply(&batch).unwrap();
        result
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
            txn.put_long(Table::Turns, b"k", b"short").unwrap();
        });
        assert_eq!(reader.store.range(Table::Turns, from, to).count(), 1);
    }
}
