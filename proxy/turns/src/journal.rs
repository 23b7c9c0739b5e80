//! The journal: an entry for each transaction, under its number, with the turns that it brought.
//!
//! It says how many transactions there were, in what order turns came, and which may have a reply.

use metaclaw_chat::TurnId;

use crate::{
    keys,
    store::{Store, StoreError, StoreTxn, Table},
    text::hash,
};

/// Turns of one transaction: an entry is one piece of 4,000 bytes.
pub(crate) const MAX_TURNS: usize = 200;

/// A turn that came into the log, and what stands for its reply's id: two replies may have the same.
pub(crate) type Entry = (TurnId, [u8; 8]);

/// Half of the hash of a reply's id; zeros of a reply that has none.
pub(crate) fn mark(reply_id: Option<&str>) -> [u8; 8] {
    let hash = reply_id.map(|reply_id| hash(reply_id.as_bytes()));
    hash.unwrap_or_default()
        .first_chunk()
        .copied()
        .unwrap_or_default()
}

/// Writes the entry of a transaction.
pub(crate) fn put(txn: &StoreTxn<'_>, number: u64, turns: &[Entry]) -> Result<(), StoreError> {
    let turns = turns.iter();
    let turns = turns.flat_map(|(id, mark)| keys::turn(*id).into_iter().chain(*mark));
    txn.put(
        Table::Journal,
        &number.to_be_bytes(),
        turns.collect::<Vec<u8>>(),
    )
}

/// The number of the last transaction; 0 of an empty log.
pub(crate) fn last_number(store: &Store) -> Result<u64, StoreError> {
    let last = store.range(Table::Journal, keys::under(&[])).next_back();
    let number = last.transpose()?.and_then(|(key, _)| keys::read_u64(&key));
    Ok(number.unwrap_or_default())
}

/// The turns of all transactions, the last first. One that was tried again is there twice.
pub(crate) fn newest_first(
    store: &Store,
) -> impl Iterator<Item = Result<Entry, StoreError>> + use<> {
    let entries = store.range(Table::Journal, keys::under(&[])).rev();
    entries.flat_map(|entry| match entry {
        Ok((_, turns)) => {
            let (turns, _) = turns.as_chunks::<20>();
            turns
                .iter()
                .rev()
                .filter_map(read)
                .map(Ok)
                .collect::<Vec<_>>()
        }
        Err(error) => vec![Err(error)],
    })
}

fn read(turn: &[u8; 20]) -> Option<Entry> {
    let (id, mark) = turn.split_first_chunk::<12>()?;
    Some((keys::read_turn(id)?, mark.try_into().ok()?))
}
