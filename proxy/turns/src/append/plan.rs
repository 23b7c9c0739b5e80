//! How a turn's conversation is written, compared with the session's last turns.

use std::collections::HashSet;

use metaclaw_chat::ChainHash;

use super::Prepared;
use crate::{
    diff::{self, AsItIs, Mask, Short, short},
    record::{Line, Part},
    tail::{MAX_DEPTH, Tail, TailTurn},
};

/// The turn that a request goes on from, and where what is new begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) seq: u32,
    pub(super) new_from: usize,
}

/// How a turn's conversation is written.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) parent: Option<Parent>,
    /// The turn that `parts` copy from.
    pub(super) base: Option<u32>,
    /// The whole conversation.
    pub(super) hashes: Vec<Short>,
    pub(super) parts: Vec<Part>,
    /// The messages that the base does not have.
    pub(super) new: Vec<Line>,
}

/// A turn to copy from, and what it does not have.
struct Base<'t> {
    turn: &'t TailTurn,
    parts: Vec<Part>,
    /// Messages that it does not have.
    lacking: HashSet<Short, AsItIs>,
    mask: Mask,
    n_bytes: usize,
}

// === impl Prepared ===

impl Prepared {
    /// How the turn is written if its place is `seq`.
    pub(super) fn plan(&self, tail: &Tail, seq: u32) -> Plan {
        // The reply comes behind them.
        let mut hashes = Vec::with_capacity(self.messages.len() + 1);
        hashes.extend(self.messages.iter().map(|it| short(&it.text.hash)));
        let parent = self.parent(tail, &hashes, seq);
        let (base, parts) = self.base(tail, &hashes, seq);
        let own = diff::own(&parts).zip(&self.messages);
        let own = own.filter(|(own, _)| *own);
        let new = own.map(|(_, message)| Line::of(&message.text)).collect();
        Plan {
            parent,
            base,
            hashes,
            parts,
            new,
        }
    }

    /// The turn whose conversation, with its reply, is the longest beginning of this one.
    ///
    /// By chain hash; where that does not tell (messages that somebody leaves out of the chain), by
    /// the very messages and reply.
    fn parent(&self, tail: &Tail, hashes: &[Short], not: u32) -> Option<Parent> {
        let mut longest: Option<Parent> = None;
        for turn in tail.turns.iter().rev().filter(|turn| turn.seq != not) {
            let Some(after) = turn.after else { continue };
            let from = longest.map_or(0, |parent| parent.new_from);
            let by_messages = || {
                let n = turn.n_messages;
                (n >= from && hashes.starts_with(&turn.sequence)).then_some(n)
            };
            let place = self.first_with(after, from).or_else(by_messages);
            longest = place.map_or(longest, |place| {
                Some(Parent {
                    seq: turn.seq,
                    new_from: place + 1,
                })
            });
        }
        longest
    }

    /// The message after which the chain is first that one, if it is at `from` or behind.
    fn first_with(&self, chain: ChainHash, from: usize) -> Option<usize> {
        let said = &self.messages;
        let last = from + said.get(from..)?.iter().rposition(|it| it.chain == chain)?;
        // Messages that do not count leave the chain as it is.
        let n_same = said[..last].iter().rev().take_while(|it| it.chain == chain);
        let first = last - n_same.count();
        (first >= from).then_some(first)
    }

    /// The turn that saves most when copied from, and the parts. None where that one builds on so many
    /// others that reading would take longer with every turn.
    fn base(&self, tail: &Tail, hashes: &[Short], before: u32) -> (Option<u32>, Vec<Part>) {
        let mut best: Option<Base<'_>> = None;
        for turn in tail.turns.iter().rev().filter(|turn| turn.seq < before) {
            if best.as_ref().is_some_and(|best| !best.gains_by(turn)) {
                continue;
            }
            let base = self.copying(turn, hashes);
            let least = best.as_ref().map_or(usize::MAX, |best| best.n_bytes);
            if base.n_bytes < least {
                best = Some(base);
            }
        }
        match best {
            Some(base) if base.turn.depth < MAX_DEPTH => (Some(base.turn.seq), base.parts),
            Some(_) | None => (None, diff::parts(&[], hashes)),
        }
    }

    fn copying<'t>(&self, turn: &'t TailTurn, hashes: &[Short]) -> Base<'t> {
        let parts = diff::parts(&turn.sequence, hashes);
        let own = diff::own(&parts).zip(hashes.iter().zip(&self.messages));
        let own = own.filter(|(own, _)| *own);
        let mut lacking = HashSet::default();
        let mut n_bytes = 0;
        for (_, (hash, message)) in own {
            lacking.insert(*hash);
            n_bytes += message.text.as_str().len();
        }
        Base {
            turn,
            parts,
            mask: diff::mask(&lacking),
            lacking,
            n_bytes,
        }
    }
}

// === impl Base ===

impl Base<'_> {
    /// Whether another turn has something of what this one lacks: one that has not does not save more.
    fn gains_by(&self, other: &TailTurn) -> bool {
        if self.mask & other.mask == 0 {
            return false;
        }
        let n_common = diff::n_common(&self.turn.sequence, &other.sequence);
        let mut others = other.sequence[n_common..].iter();
        others.any(|hash| self.lacking.contains(hash))
    }
}
