//! The last turns of recent sessions, in memory: what a new turn is compared with.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use metaclaw_chat::{AgentId, ChainHash, SessionId, TurnId};
use serde::{Deserialize, Serialize};

use crate::{
    blobs::{Hash, Known},
    diff::{Mask, Short},
    turn::TurnKind,
};

/// Turns of a session that a new one is compared with. Older ones are in the log, but are taken
/// neither for a parent nor for a retry.
pub(crate) const WINDOW: usize = 12;
/// Records that are read at most to put one turn together. A session may go on for weeks; the turn after
/// so many says its messages again.
pub(crate) const MAX_DEPTH: u32 = 64;
/// Bytes of memory that all tails take together. Beyond, the least recent sessions are read again from
/// the log when they go on.
const MAX_BYTES: usize = 8 << 20;
/// Sessions whose names are remembered.
const MAX_NAMES: usize = 20_000;

/// What the log knows about a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) agent: AgentId,
    pub(crate) session: SessionId,
    pub(crate) created_ms: u64,
}

/// One of a session's last turns. Of every text only a hash: what is kept grows with the number of
/// messages, not with what an agent writes into them or beside them.
#[derive(Debug, Clone)]
pub(crate) struct TailTurn {
    pub(crate) seq: u32,
    pub(crate) key: u64,
    pub(crate) kind: TurnKind,
    pub(crate) chain: ChainHash,
    /// The chain with the reply; none if there was no reply.
    pub(crate) after: Option<ChainHash>,
    pub(crate) complete: bool,
    pub(crate) base: Option<u32>,
    /// Records that it builds on, one upon the other.
    pub(crate) depth: u32,
    /// The request's messages, then the reply.
    pub(crate) sequence: Vec<Short>,
    /// Of that.
    pub(crate) mask: Mask,
    pub(crate) n_messages: usize,
    /// What its reply's id is known by.
    pub(crate) reply_id: Option<Short>,
    /// Of the lines of its setup, which the session's turns mostly share.
    pub(crate) setup: Hash,
    pub(crate) ended_ms: u64,
}

/// The last turns of one session, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail {
    pub(crate) next_seq: u32,
    pub(crate) turns: VecDeque<TailTurn>,
    /// When it was last used, as a count of uses.
    used: u64,
}

/// What is remembered between operations; may be thrown away at any time between two batches.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    tails: HashMap<u64, Tail>,
    /// Of all tails.
    n_bytes: usize,
    pub(crate) numbers: HashMap<(AgentId, SessionId), u64>,
    pub(crate) sessions: HashMap<u64, Arc<SessionRecord>>,
    pub(crate) next_number: Option<u64>,
    pub(crate) blobs: Known,
    /// Turns of a transaction that failed, and is written again: some may be there.
    pub(crate) recalled: HashMap<u64, TurnId>,
    uses: u64,
}

// === impl Tail ===

impl Tail {
    /// Adds a turn, or puts it in place of the one with its number.
    pub(crate) fn put(&mut self, turn: TailTurn) {
        self.next_seq = self.next_seq.max(turn.seq.saturating_add(1));
        match self.turns.iter_mut().rev().find(|old| old.seq == turn.seq) {
            Some(old) => *old = turn,
            None => self.turns.push_back(turn),
        }
        if self.turns.len() > WINDOW {
            self.turns.pop_front();
        }
    }

    /// Bytes of memory that it takes, with its place among the others.
    fn n_bytes(&self) -> usize {
        let hashes = self.turns.iter().map(|turn| turn.sequence.capacity());
        size_of::<(u64, Self)>()
            + self.turns.capacity() * size_of::<TailTurn>()
            + hashes.sum::<usize>() * size_of::<Short>()
    }
}

// === impl Cache ===

impl Cache {
    /// A session's tail, to be put back after use.
    pub(crate) fn take_tail(&mut self, number: u64) -> Option<Tail> {
        let tail = self.tails.remove(&number)?;
        self.n_bytes -= tail.n_bytes();
        Some(tail)
    }

    /// Puts a session's tail back.
    pub(crate) fn put_tail(&mut self, number: u64, mut tail: Tail) {
        self.take_tail(number);
        self.uses += 1;
        tail.used = self.uses;
        self.n_bytes += tail.n_bytes();
        self.tails.insert(number, tail);
    }

    /// Forgets a session that was not stored after all.
    pub(crate) fn forget(&mut self, number: u64, agent: &AgentId, session: &SessionId) {
        self.take_tail(number);
        self.sessions.remove(&number);
        self.numbers.remove(&(agent.clone(), session.clone()));
    }

    /// Forgets what is over the bounds. Only between batches: a tail also knows what is not stored yet.
    pub(crate) fn trim(&mut self) {
        if self.sessions.len() > MAX_NAMES {
            self.numbers.clear();
            self.sessions.clear();
        }
        if self.n_bytes <= MAX_BYTES {
            return;
        }
        let mut oldest: Vec<(u64, u64)> = self
            .tails
            .iter()
            .map(|(number, tail)| (tail.used, *number))
            .collect();
        oldest.sort_unstable();
        for (_, number) in oldest {
            if self.n_bytes <= MAX_BYTES / 2 {
                break;
            }
            self.take_tail(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(n_hashes: usize) -> Tail {
        let mut tail = Tail::default();
        tail.put(TailTurn {
            seq: 0,
            key: 0,
            kind: TurnKind::Main,
            chain: ChainHash([0; 32]),
            after: None,
            complete: true,
            base: None,
            depth: 0,
            sequence: vec![[0; 16]; n_hashes],
            mask: 1,
            n_messages: n_hashes,
            reply_id: None,
            setup: [0; 32],
            ended_ms: 0,
        });
        tail
    }

    #[test]
    fn the_least_recent_sessions_are_forgotten_first() {
        let mut cache = Cache::default();
        for number in 0..3 {
            cache.put_tail(number, tail(200_000));
        }
        cache.trim();
        let mut left: Vec<u64> = cache.tails.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [2]);
    }

    #[test]
    fn many_sessions_of_few_messages_count_with_all_that_they_take() {
        let mut cache = Cache::default();
        for number in 0..100_000 {
            cache.put_tail(number, tail(1));
        }
        cache.trim();
        assert!(cache.tails.contains_key(&99_999));
        let n_bytes = cache.tails.len() * size_of::<TailTurn>();
        assert!(n_bytes <= MAX_BYTES, "{n_bytes} bytes");
    }
}
