//! The journal: an entry for each transaction, under its number, with the turns that it brought.
//!
//! It says how many transactions there were, in what order turns came, and which may have a reply.

use std::ops::Bound;

use metaclaw_chat::TurnId;

use crate::{
    keys,
    store::{Store, StoreError, StoreTxn, Table},
    text::hash,
};

/// Bytes of a turn in an entry.
const TURN: usize = 20;
/// Turns of one transaction: an entry is one piece.
pub(crate) const MAX_TURNS: usize = 4_000 / TURN;

/// A turn that came into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: TurnId,
    /// Stands for its reply's id. Two may have the same: the record decides.
    pub(crate) reply: Mark,
}

/// Half of the hash of a reply's id; zeros of a reply that has none.
pub(crate) type Mark = [u8; 8];

pub(crate) fn mark(reply_id: Option<&str>) -> Mark {
    let mut mark = Mark::default();
    if let Some(reply_id) = reply_id {
        mark.copy_from_slice(&hash(reply_id.as_bytes())[..8]);
    }
    mark
}

// === impl Entry ===

impl Entry {
    pub(crate) fn new(id: TurnId, reply_id: Option<&str>) -> Self {
        let reply = mark(reply_id);
        Self { id, reply }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (id, reply) = bytes.split_first_chunk::<12>()?;
        Some(Self {
            id: keys::read_turn(id)?,
            reply: reply.try_into().ok()?,
        })
    }
}

/// Writes the entry of a transaction.
pub(crate) fn put(txn: &StoreTxn<'_>, number: u64, turns: &[Entry]) -> Result<(), StoreError> {
    let turns = turns.iter().flat_map(|entry| {
        let id = keys::turn(entry.id);
        id.into_iter().chain(entry.reply)
    });
    let value: Vec<u8> = turns.collect();
    txn.put(Table::Journal, &number.to_be_bytes(), value)
}

/// The number of the last transaction; 0 of an empty log.
pub(crate) fn last_number(store: &Store) -> Result<u64, StoreError> {
    let last = store.range(Table::Journal, keys::under(&[])).next_back();
    let number = last.transpose()?.and_then(|(key, _)| keys::read_u64(&key));
    Ok(number.unwrap_or_default())
}

/// The turns of all transactions, or of those before one, the last first, each with its transaction's
/// number. One that was tried again is there twice.
pub(crate) fn newest_first(
    store: &Store,
    before: Option<u64>,
) -> impl Iterator<Item = Result<(u64, Entry), StoreError>> + use<> {
    let to = before.map_or(Bound::Unbounded, |before| {
        Bound::Excluded((&before.to_be_bytes()).into())
    });
    let entries = store.range(Table::Journal, (Bound::Unbounded, to)).rev();
    entries.flat_map(|entry| match entry {
        Ok((key, value)) => {
            let number = keys::read_u64(&key).unwrap_or_default();
            let turns = value.chunks_exact(TURN).rev();
            let turns = turns.filter_map(|turn| Some(Ok((number, Entry::read(turn)?))));
            turns.collect::<Vec<_>>()
        }
        Err(error) => vec![Err(error)],
    })
}
