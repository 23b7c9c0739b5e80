//! The journal: for each transaction an entry under its number, with the turns that it added.
//!
//! It shows how many transactions there were, the order of turns, and which turns may have a certain reply.

use std::{collections::HashSet, ops::RangeInclusive};

use metaclaw_chat::TurnId;

use crate::{
    keys,
    record::Record,
    store::{Bytes, Store, StoreResult, StoreSource as _, StoreTxn, Table},
    text::{Hash, hash},
    values::{self, TxnResult},
};

/// Turns in one transaction, so that an entry is one piece of 4,000 bytes.
pub(crate) const MAX_TURNS: usize = 200;

/// Bytes of one turn in an entry.
const ENTRY: usize = 20;
/// Transactions and turns that one query reads, because the log's thread has other work.
const MAX_SEEN: usize = 2_000;

/// A turn that was added, and a mark for its reply's id. Two replies may have the same mark.
pub(crate) type JournalEntry = (TurnId, [u8; 8]);

/// Returns half of the hash of a reply's id, or zeros for a reply without one.
pub(crate) fn mark(reply_id: Option<&str>) -> [u8; 8] {
    let hash = reply_id.map_or_else(Hash::default, |reply_id| hash(reply_id.as_bytes()));
    hash.first_chunk().copied().unwrap_or_default()
}

pub(crate) fn put(txn: &StoreTxn<'_>, number: u64, turns: &[JournalEntry]) -> StoreResult<()> {
    let bytes = turns
        .iter()
        .flat_map(|(id, mark)| keys::turn(*id).into_iter().chain(*mark));
    txn.put(
        Table::Journal,
        &number.to_be_bytes(),
        bytes.collect::<Vec<u8>>(),
    )
}

/// Writes the entry of a turn that came into another log at about `at_ms`. It is placed after the transaction `after`
/// of this log, and after entries that were placed there before.
pub(crate) fn put_back(
    txn: &StoreTxn<'_>,
    after: u64,
    at_ms: u64,
    entry: JournalEntry,
) -> StoreResult<()> {
    let (id, mark) = entry;
    let beginning = [after.to_be_bytes(), at_ms.to_be_bytes()].concat();
    let mut n = 0_u32;
    let key = loop {
        let key = [&beginning[..], &n.to_be_bytes()].concat();
        if txn.get(Table::Journal, &key)?.is_none() {
            break key;
        }
        n += 1;
    };
    txn.put(Table::Journal, &key, [&keys::turn(id)[..], &mark].concat())
}

/// Returns the transactions that added this log's own turns, with the time when the last of these ended: the newest
/// first, up to the first whose turns had all ended at `ms`.
pub(crate) fn back_to(store: &Store, ms: u64) -> TxnResult<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for pair in store.range(Table::Journal, keys::under(&[])).rev() {
        let (key, turns) = pair?;
        let Ok(number) = <[u8; 8]>::try_from(&key[..]) else {
            continue;
        };
        let mut ended_ms = None;
        for (id, _) in read(&turns) {
            let turn = values::readable(Record::get(store, id))?.flatten();
            ended_ms = ended_ms.max(turn.map(|turn| turn.meta.ended_ms));
        }
        if let Some(ended_ms) = ended_ms {
            found.push((u64::from_be_bytes(number), ended_ms));
            if ended_ms <= ms {
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the sessions with a turn that was written after one that ended in `times_ms`, which they contain too.
pub(crate) fn sessions_since(
    store: &Store,
    times_ms: RangeInclusive<u64>,
) -> TxnResult<HashSet<u64>> {
    let mut sessions = HashSet::new();
    for pair in store.range(Table::Journal, keys::under(&[])) {
        for (id, _) in read(&pair?.1) {
            if sessions.is_empty() {
                let turn = values::readable(Record::get(store, id))?.flatten();
                if !turn.is_some_and(|turn| times_ms.contains(&turn.meta.ended_ms)) {
                    continue;
                }
            }
            sessions.insert(id.session);
        }
    }
    Ok(sessions)
}

/// Returns the first transaction after one that added turns of this log's own, with these turns in their order.
pub(crate) fn next_own(store: &Store, after: u64) -> StoreResult<Option<(u64, Vec<TurnId>)>> {
    let next = Bytes::from(&after.saturating_add(1).to_be_bytes());
    for pair in store.range(Table::Journal, next..) {
        let (key, turns) = pair?;
        // The key of a restored turn is longer.
        if let Ok(number) = <[u8; 8]>::try_from(&key[..])
            && !turns.is_empty()
        {
            let mut ids: Vec<TurnId> = read(&turns).map(|(id, _)| id).collect();
            ids.reverse();
            return Ok(Some((u64::from_be_bytes(number), ids)));
        }
    }
    Ok(None)
}

pub(crate) fn last_number(store: &Store) -> StoreResult<u64> {
    let last = store.range(Table::Journal, keys::under(&[])).next_back();
    let number = last.transpose()?.and_then(|(key, _)| keys::read_u64(&key));
    Ok(number.unwrap_or_default())
}

/// Returns all turns, the latest first. If a turn was tried again, it has the place of its last try.
pub(crate) fn newest_first(store: &Store) -> impl Iterator<Item = StoreResult<TurnId>> + use<> {
    let mut seen = HashSet::new();
    let turns = store.range(Table::Journal, keys::under(&[])).rev();
    let ids = turns.flat_map(|turns| match turns {
        Ok((_, turns)) => read(&turns).map(|(id, _)| Ok(id)).collect(),
        Err(error) => vec![Err(error)],
    });
    ids.filter(move |id| id.as_ref().map_or(true, |id| seen.insert(*id)))
}

/// Returns the latest turns before an entry (or of all) that have a mark, the latest first. If there may be more, it
/// also returns the entry before which to continue.
pub(crate) fn marked(
    store: &Store,
    mark: [u8; 8],
    before: Option<&Bytes>,
) -> StoreResult<(Vec<TurnId>, Option<Bytes>)> {
    let (mut ids, mut n_seen) = (Vec::new(), 0);
    let range = match before {
        Some(before) => keys::between(&[], before),
        None => keys::under(&[]),
    };
    for turns in store.range(Table::Journal, range).rev() {
        let (key, turns) = turns?;
        ids.extend(
            read(&turns)
                .filter(|entry| entry.1 == mark)
                .map(|(id, _)| id),
        );
        n_seen += 1 + turns.len() / ENTRY;
        if n_seen >= MAX_SEEN {
            return Ok((ids, Some(key)));
        }
    }
    Ok((ids, None))
}

/// Returns the turns of one transaction, the latest first.
fn read(turns: &[u8]) -> impl Iterator<Item = JournalEntry> {
    let (turns, _) = turns.as_chunks::<ENTRY>();
    turns.iter().rev().filter_map(|turn| {
        let (id, mark) = turn.split_first_chunk::<12>()?;
        Some((keys::read_turn(id)?, mark.try_into().ok()?))
    })
}
