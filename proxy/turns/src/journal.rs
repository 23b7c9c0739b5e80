//! The journal: an entry for each transaction, under its number, with the turns that it brought.
//!
//! It says how many transactions there were, in what order turns came, and which may have a reply.

use std::collections::HashSet;

use metaclaw_chat::TurnId;

use crate::{
    keys,
    store::{Store, StoreError, StoreTxn, Table},
    text::hash,
};

/// Turns of one transaction: an entry is one piece of 4,000 bytes.
pub(crate) const MAX_TURNS: usize = 200;

/// Bytes of a turn there.
const ENTRY: usize = 20;
/// Transactions and turns that are looked through at once: the log's thread has other things to do.
const MAX_SEEN: usize = 2_000;

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

/// All turns, the last one first. One that was tried again stands where its last try does.
pub(crate) fn newest_first(
    store: &Store,
) -> impl Iterator<Item = Result<TurnId, StoreError>> + use<> {
    let mut seen = HashSet::new();
    let turns = store.range(Table::Journal, keys::under(&[])).rev();
    let ids = turns.flat_map(|turns| match turns {
        Ok((_, turns)) => read(&turns).map(|(id, _)| Ok(id)).collect(),
        Err(error) => vec![Err(error)],
    });
    ids.filter(move |id| id.as_ref().map_or(true, |id| seen.insert(*id)))
}

/// Those of the last turns before a transaction that have a mark, the last one first, and the transaction that
/// others are to be looked for before: 0 where there are none.
pub(crate) fn marked(
    store: &Store,
    mark: [u8; 8],
    before: u64,
) -> Result<(Vec<TurnId>, u64), StoreError> {
    let (mut ids, mut n_seen) = (Vec::new(), 0);
    let before = keys::between(&[], &before.to_be_bytes());
    for turns in store.range(Table::Journal, before).rev() {
        let (number, turns) = turns?;
        ids.extend(read(&turns).filter(|it| it.1 == mark).map(|it| it.0));
        n_seen += 1 + turns.len() / ENTRY;
        if n_seen >= MAX_SEEN {
            return Ok((ids, keys::read_u64(&number).unwrap_or_default()));
        }
    }
    Ok((ids, 0))
}

/// The turns of one transaction, the last one first.
fn read(turns: &[u8]) -> impl Iterator<Item = Entry> {
    let (turns, _) = turns.as_chunks::<ENTRY>();
    turns.iter().rev().filter_map(|turn| {
        let (id, mark) = turn.split_first_chunk::<12>()?;
        Some((keys::read_turn(id)?, mark.try_into().ok()?))
    })
}
