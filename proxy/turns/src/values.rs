//! Values that may be long: packed, and cut into pieces of at most 4 KB.
//!
//! sled would put larger pages into separate files, which it never syncs. The first piece is under the key itself, the
//! others under the key and a number. A piece that is not full is the last one.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    codec,
    error::{LogError, TakeError},
    keys,
    store::{Bytes, Store, StoreError, StoreResult, StoreSource, StoreTxn, Table},
};

const PIECE: usize = 4_000;

#[derive(Debug, derive_more::From)]
pub(crate) enum TxnError {
    /// The store failed, so the whole transaction fails.
    #[from]
    Store(StoreError),
    /// The operation refuses, before it wrote anything. The others continue.
    #[from(LogError, TakeError)]
    Refused(LogError),
}

pub(crate) type TxnResult<T> = Result<T, TxnError>;

/// Splits the result of an operation: an error of the store concerns everybody.
pub(crate) fn split<T>(result: TxnResult<T>) -> StoreResult<Result<T, LogError>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(TxnError::Refused(error)) => Ok(Err(error)),
        Err(TxnError::Store(error)) => Err(error),
    }
}

pub(crate) fn get(
    source: &impl StoreSource,
    table: Table,
    key: &[u8],
) -> TxnResult<Option<Vec<u8>>> {
    let Some(first) = source.get(table, key)? else {
        return Ok(None);
    };
    let others = (1..).map(|piece| source.get(table, &keys::piece(key, piece)));
    join(table, &first, others.map_while(Result::transpose)).map(Some)
}

/// Returns the JSON values under keys that begin with a prefix, in order. Do not call it within a transaction.
pub(crate) fn all_json<T: DeserializeOwned>(
    store: &Store,
    table: Table,
    prefix: &[u8],
) -> TxnResult<Vec<(Bytes, T)>> {
    let found = each_json(store, table, prefix)?.into_iter();
    found.map(|(key, value)| Ok((key, value?))).collect()
}

/// Returns the readable ones, because an unreadable one must not hide the others.
pub(crate) fn readable_json<T: DeserializeOwned>(
    store: &Store,
    table: Table,
    prefix: &[u8],
) -> TxnResult<Vec<(Bytes, T)>> {
    let mut found = Vec::new();
    for (key, value) in each_json(store, table, prefix)? {
        found.extend(readable(value)?.map(|value| (key, value)));
    }
    Ok(found)
}

type Each<T> = Vec<(Bytes, TxnResult<T>)>;

fn each_json<T: DeserializeOwned>(
    store: &Store,
    table: Table,
    prefix: &[u8],
) -> TxnResult<Each<T>> {
    let (mut pairs, mut found) = (store.range(table, keys::under(prefix)), Vec::new());
    while let Some(pair) = pairs.next() {
        let (key, first) = pair?;
        let others = pairs.by_ref().map(|pair| pair.map(|(_, piece)| piece));
        let value = match join(table, &first, others) {
            Err(error @ TxnError::Store(_)) => return Err(error),
            value => value.and_then(|value| read_json(table, &value)),
        };
        found.push((key, value));
    }
    Ok(found)
}

/// Returns the value if it is readable. If it is damaged, logs this and returns `None`.
pub(crate) fn readable<T>(read: TxnResult<T>) -> TxnResult<Option<T>> {
    match read {
        Err(TxnError::Refused(error @ LogError::Damaged { .. })) => {
            tracing::warn!(%error, "something in the turn log is passed over");
            Ok(None)
        }
        read => read.map(Some),
    }
}

fn join(
    table: Table,
    first: &[u8],
    mut others: impl Iterator<Item = StoreResult<Bytes>>,
) -> TxnResult<Vec<u8>> {
    let damaged = |why: String| damaged(format!("a value of {table:?}"), why);
    if first.len() < PIECE {
        return codec::unpack(first).map_err(damaged);
    }
    let mut packed = first.to_vec();
    loop {
        let next = others.next().transpose()?;
        let piece = next.ok_or_else(|| damaged("a piece is missing".to_owned()))?;
        packed.extend_from_slice(&piece);
        if piece.len() < PIECE {
            return codec::unpack(&packed).map_err(damaged);
        }
    }
}

pub(crate) fn get_json<T: DeserializeOwned>(
    source: &impl StoreSource,
    table: Table,
    key: &[u8],
) -> TxnResult<Option<T>> {
    let bytes = get(source, table, key)?;
    bytes.map(|bytes| read_json(table, &bytes)).transpose()
}

fn read_json<T: DeserializeOwned>(table: Table, bytes: &[u8]) -> TxnResult<T> {
    let value = serde_json::from_slice(bytes);
    value.map_err(|error| damaged(format!("a value of {table:?}"), error.to_string()))
}

pub(crate) fn put(txn: &StoreTxn<'_>, table: Table, key: &[u8], bytes: &[u8]) -> StoreResult<()> {
    let packed = codec::pack(bytes).map_err(StoreError::Other)?;
    let n_pieces = u16::try_from(packed.len() / PIECE + 1)
        .map_err(|_| StoreError::Other("a value is too long".to_owned()))?;
    remove_from(txn, table, key, n_pieces)?;
    let mut rest = &packed[..];
    for piece in 0..n_pieces {
        let (bytes, after) = rest.split_at(rest.len().min(PIECE));
        txn.put(table, &keys::piece(key, piece), bytes)?;
        rest = after;
    }
    Ok(())
}

pub(crate) fn put_json(
    txn: &StoreTxn<'_>,
    table: Table,
    key: &[u8],
    value: &impl Serialize,
) -> StoreResult<()> {
    let bytes = serde_json::to_vec(value).map_err(|error| StoreError::Other(error.to_string()))?;
    put(txn, table, key, &bytes)
}

pub(crate) fn remove(txn: &StoreTxn<'_>, table: Table, key: &[u8]) -> StoreResult<()> {
    remove_from(txn, table, key, 0)
}

fn remove_from(txn: &StoreTxn<'_>, table: Table, key: &[u8], from: u16) -> StoreResult<()> {
    for piece in 0.. {
        let piece_key = keys::piece(key, piece);
        let Some(bytes) = txn.get(table, &piece_key)? else {
            break;
        };
        if piece >= from {
            txn.remove(table, &piece_key)?;
        }
        if bytes.len() < PIECE {
            break;
        }
    }
    Ok(())
}

pub(crate) fn damaged(what: impl Into<String>, why: impl Into<String>) -> TxnError {
    TxnError::Refused(LogError::Damaged {
        what: what.into(),
        why: why.into(),
    })
}

// === impl TxnError ===

impl TxnError {
    /// Makes the whole transaction fail where an operation of several parts refuses in the middle, because its earlier
    /// parts were written. Only damage can cause this.
    pub(crate) fn fail_all(self) -> Self {
        Self::Store(self.into_store())
    }

    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Refused(error) => StoreError::Other(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_comes_back_whole_and_no_piece_is_over_4_kb() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 8 << 20).unwrap();
        // The value does not compress, so that it really is cut.
        let mut long = vec![0; 50_000];
        blake3::Hasher::new().finalize_xof().fill(&mut long);
        // The sizes include values whose last piece is exactly full, and values that shrink.
        let sizes = [50_000, 3_985, 3_986, 3_987, 3_988, 3_989, 3_990, 10, 0];
        for n_bytes in sizes {
            let value = &long[..n_bytes];
            let put = |txn: &StoreTxn<'_>| put(txn, Table::Turns, b"k", value);
            store.transaction(put).unwrap();
            let back = get(&store, Table::Turns, b"k").unwrap();
            assert_eq!(back.as_deref(), Some(value), "{n_bytes}");
            let pairs = store.range(Table::Turns, keys::under(b"k"));
            let pieces: Vec<usize> = pairs.map(|pair| pair.unwrap().1.len()).collect();
            assert!(pieces.iter().all(|piece| *piece <= PIECE));
            assert!(pieces.len() <= n_bytes / PIECE + 2, "{pieces:?}");
        }
        let remove = |txn: &StoreTxn<'_>| remove(txn, Table::Turns, b"k");
        store.transaction(remove).unwrap();
        assert_eq!(store.range(Table::Turns, keys::under(b"k")).count(), 0);
    }
}
