//! When turns ended, and by what their replies are known.
//!
//! One entry for the turns of a transaction, in order, under the last of them: of each its id, how long
//! before the last it ended (milliseconds, u32), and the mark of its reply's id. Entries of a log of
//! format 2 are of one turn each and empty.

use std::{collections::BinaryHeap, iter::Peekable, ops::Bound};

use metaclaw_chat::TurnId;

use crate::{
    diff::Short,
    keys,
    store::{Pair, StoreError, Table},
    txn::{Reader, Txn},
};

/// The longest time between two ends in one entry.
const MAX_SPAN_MS: u64 = 1_000;
/// Turns in one entry: sled would turn larger ones into files that it never syncs.
const MAX_TURNS: usize = 128;

/// The beginning of a reply id's hash; zeros where there is no id.
pub(crate) type Mark = [u8; 8];

/// A turn's place among all: when it ended, in Unix milliseconds, and which it is.
pub(crate) type Place = (u64, TurnId);

/// Bytes of one turn in a value.
const TURN: usize = 12 + 4 + size_of::<Mark>();

/// A turn, ordered by when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ended {
    /// In Unix milliseconds.
    pub(crate) at_ms: u64,
    pub(crate) id: TurnId,
    pub(crate) reply: Mark,
}

/// Stands for a reply id.
pub(crate) fn mark(reply_id: Option<&Short>) -> Mark {
    let mark = reply_id.and_then(|hash| hash.first_chunk());
    mark.copied().unwrap_or_default()
}

/// Enters turns.
pub(crate) fn put(txn: &mut Txn<'_>, mut turns: Vec<Ended>) {
    turns.sort_unstable();
    while let Some(last) = turns.last() {
        let is_long_before = |turn: &Ended| last.at_ms - turn.at_ms > MAX_SPAN_MS;
        let n_before = turns.partition_point(is_long_before);
        let entry = turns.split_off(n_before.max(turns.len().saturating_sub(MAX_TURNS)));
        put_entry(txn, &entry);
    }
}

fn put_entry(txn: &mut Txn<'_>, turns: &[Ended]) {
    let Some(last) = turns.last() else {
        return;
    };
    let mut value = Vec::with_capacity(turns.len() * TURN);
    for turn in turns {
        let before = u32::try_from(last.at_ms - turn.at_ms).unwrap_or(u32::MAX);
        value.extend(&*keys::turn(turn.id));
        value.extend(before.to_be_bytes());
        value.extend(turn.reply);
    }
    txn.put(Table::Times, keys::time(last.at_ms, last.id), value);
}

/// Takes out a turn that was entered alone.
pub(crate) fn remove(txn: &mut Txn<'_>, ended_ms: u64, id: TurnId) {
    txn.remove(Table::Times, keys::time(ended_ms, id));
}

fn read((key, value): &Pair) -> Vec<Ended> {
    let Some((last, last_ms)) = keys::read_turn(key).zip(keys::read_time(key)) else {
        return Vec::new();
    };
    if value.is_empty() {
        return vec![Ended {
            at_ms: last_ms,
            id: last,
            reply: Mark::default(),
        }];
    }
    let turns = value.chunks_exact(TURN).filter_map(|turn| {
        let (id, turn) = turn.split_first_chunk::<12>()?;
        let (before, mark) = turn.split_first_chunk::<4>()?;
        Some(Ended {
            at_ms: last_ms.saturating_sub(u32::from_be_bytes(*before).into()),
            id: keys::read_turn(id)?,
            reply: mark.try_into().ok()?,
        })
    });
    turns.collect()
}

/// All turns, or those before one, the last first.
pub(crate) fn newest_first(
    reader: &Reader,
    before: Option<Place>,
) -> impl Iterator<Item = Result<Ended, StoreError>> + use<> {
    let to = before.map_or(Bound::Unbounded, |(before_ms, _)| {
        // An entry may hold earlier turns than the last, under which it stands.
        let end_ms = before_ms.saturating_add(MAX_SPAN_MS + 1);
        Bound::Excluded((&end_ms.to_be_bytes()).into())
    });
    let entries = reader.store.range(Table::Times, Bound::Unbounded, to);
    NewestFirst {
        entries: entries.rev().peekable(),
        before,
        found: BinaryHeap::new(),
    }
}

/// Puts the turns of entries, which overlap, in order.
struct NewestFirst<I: Iterator> {
    entries: Peekable<I>,
    before: Option<Place>,
    /// Of the entries that were read.
    found: BinaryHeap<Ended>,
}

impl<I: Iterator<Item = Result<Pair, StoreError>>> Iterator for NewestFirst<I> {
    type Item = Result<Ended, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = self.entries.peek().and_then(|entry| entry.as_ref().ok());
            let next_ms = next.and_then(|(key, _)| keys::read_time(key));
            let is_last = |turn: &Ended| next_ms.is_none_or(|next_ms| next_ms < turn.at_ms);
            if self.found.peek().is_some_and(is_last) {
                return self.found.pop().map(Ok);
            }
            match self.entries.next()? {
                Ok(entry) => {
                    let turns = read(&entry).into_iter();
                    let is_before = |turn: &Ended| {
                        self.before
                            .is_none_or(|before| (turn.at_ms, turn.id) < before)
                    };
                    self.found.extend(turns.filter(is_before));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
