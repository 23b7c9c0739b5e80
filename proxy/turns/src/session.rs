//! What a session has said so far, in memory: what its next turn is compared with.

use std::collections::{HashMap, VecDeque};

use metaclaw_chat::{AgentId, SessionId};
use serde::{Deserialize, Serialize};

use crate::{
    keys,
    record::{Header, Place, Record, ReplyLine, Span, line_hash},
    store::Source,
    text::Hash,
    values::TxnError,
};

/// Turns of a session that may be the parent of a new one, or tried again by it. Of older ones the lines
/// are known, and no more.
const RECENT: usize = 12;
/// Stands for a line that does not read back: no text has this hash.
const UNKNOWN: Hash = [0; 16];

/// What the log knows about a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) agent: AgentId,
    pub(crate) session: SessionId,
    pub(crate) created_ms: u64,
}

/// The lines of a session's turns, by their hashes, and its last turns.
#[derive(Debug, Default)]
pub(crate) struct SessionIndex {
    /// Of each turn, by its place in the session.
    lines: Vec<Box<[Hash]>>,
    /// Where each text lies. One that clients write in several ways is found under the hash of each.
    places: HashMap<Hash, Place>,
    recent: VecDeque<RecentTurn>,
    n_lines: usize,
}

/// One of a session's last turns.
#[derive(Debug, Clone)]
pub(crate) struct RecentTurn {
    pub(crate) seq: u32,
    pub(crate) header: Header,
    pub(crate) reply: Option<Place>,
    /// What its setup is known by; not of a turn that was read back.
    pub(crate) setup_hash: Option<Hash>,
}

// === impl SessionIndex ===

impl SessionIndex {
    /// Reads a session's turns.
    ///
    /// One that does not read back is left out, and said: it must not keep later ones from the log.
    pub(crate) fn load(source: &impl Source, number: u64) -> Result<Self, TxnError> {
        let mut index = Self::default();
        let mut last = VecDeque::new();
        for seq in 0.. {
            let id = keys::id(number, seq);
            let hashes = match Record::get(source, id) {
                Ok(Some(record)) => {
                    let hashes = record.own.iter().map(|line| line_hash(line)).collect();
                    last.push_back((id, record));
                    hashes
                }
                Ok(None) => break,
                Err(TxnError::Refused(error)) => {
                    tracing::warn!(%error, "a turn is left out");
                    vec![UNKNOWN]
                }
                Err(error) => return Err(error),
            };
            if last.len() > RECENT {
                last.pop_front();
            }
            index.set_lines(seq, hashes);
        }
        for (id, record) in last {
            match record.header(id) {
                Ok(header) => {
                    index.put_recent(RecentTurn::new(id.seq, header, record.own.len(), None));
                }
                Err(TxnError::Refused(error)) => tracing::warn!(%error, "a turn is left out"),
                Err(error) => return Err(error),
            }
        }
        Ok(index)
    }

    /// The place of the next new turn.
    pub(crate) fn next_seq(&self) -> u32 {
        u32::try_from(self.lines.len()).unwrap_or(u32::MAX)
    }

    /// The last turns, the latest first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &RecentTurn> {
        self.recent.iter().rev()
    }

    /// Where a text lies: preferably at `expected`.
    pub(crate) fn find(&self, hash: &Hash, expected: Option<Place>) -> Option<Place> {
        let is_there = |place: &Place| self.hash_at(*place) == Some(hash);
        let expected = expected.filter(is_there);
        expected.or_else(|| self.places.get(hash).copied())
    }

    /// The line after a place, if there is one.
    pub(crate) fn after(&self, Place { seq, at }: Place) -> Option<Place> {
        let next = Place { seq, at: at + 1 };
        if self.hash_at(next).is_some() {
            return Some(next);
        }
        let later = self.lines.iter().zip(0u32..).skip(seq as usize + 1);
        let mut later = later.filter(|(lines, _)| !lines.is_empty());
        later.next().map(|(_, seq)| Place { seq, at: 0 })
    }

    /// The places of a conversation, put together to runs.
    pub(crate) fn spans(&self, places: &[Place]) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut next = None;
        for place in places {
            let to = Place {
                at: place.at + 1,
                ..*place
            };
            match spans.last_mut() {
                Some(span) if next == Some(*place) => span.to = to,
                _ => spans.push(Span { from: *place, to }),
            }
            next = self.after(*place);
        }
        spans
    }

    /// The places of a conversation, one by one; what is not there ends a run.
    pub(crate) fn places(&self, spans: &[Span]) -> Vec<Place> {
        let mut places = Vec::new();
        for Span { from, to } in spans {
            let is_before = |place: &Place| (place.seq, place.at) < (to.seq, to.at);
            let run = std::iter::successors(Some(*from), |place| self.after(*place));
            places.extend(run.take_while(is_before));
        }
        places
    }

    /// Whether a text lies at a place.
    pub(crate) fn is_at(&self, hash: &Hash, place: Place) -> bool {
        self.hash_at(place) == Some(hash)
    }

    /// Adds a turn whose lines are known, or puts it in the place of the one with its number.
    pub(crate) fn put_recent(&mut self, turn: RecentTurn) {
        match self.recent.iter_mut().find(|old| old.seq == turn.seq) {
            Some(old) => *old = turn,
            None => self.recent.push_back(turn),
        }
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// A text that is written otherwise than where it lies.
    pub(crate) fn put_alias(&mut self, hash: Hash, place: Place) {
        self.places.insert(hash, place);
    }

    /// Bytes of memory that it takes, about.
    pub(crate) fn n_bytes(&self) -> usize {
        /// Of a turn and of a line with its place.
        const TURN: usize = 64;
        const LINE: usize = size_of::<Hash>() + 2 * size_of::<(Hash, Place)>();
        let spans = self.recent.iter().map(|turn| turn.header.said.capacity());
        let aliases = self.places.len().saturating_sub(self.n_lines);
        size_of::<Self>()
            + self.lines.len() * TURN
            + (self.n_lines + aliases) * LINE
            + spans.sum::<usize>() * size_of::<Span>()
            + self.recent.len() * size_of::<RecentTurn>()
    }

    fn hash_at(&self, place: Place) -> Option<&Hash> {
        self.lines.get(place.seq as usize)?.get(place.at as usize)
    }

    /// Adds a turn's lines, or puts them in the place of those it had.
    pub(crate) fn set_lines(&mut self, seq: u32, lines: Vec<Hash>) {
        if let Some(old) = self.lines.get_mut(seq as usize) {
            self.n_lines -= old.len();
            *old = Box::default();
            self.places.retain(|_, place| place.seq != seq);
        }
        self.n_lines += lines.len();
        let known = lines.iter().zip(0..).filter(|(hash, _)| **hash != UNKNOWN);
        self.places
            .extend(known.map(|(hash, at)| (*hash, Place { seq, at })));
        match self.lines.get_mut(seq as usize) {
            Some(place) => *place = lines.into(),
            None => self.lines.push(lines.into()),
        }
    }
}

// === impl RecentTurn ===

impl RecentTurn {
    /// A turn with so many lines of its own.
    pub(crate) fn new(seq: u32, header: Header, n_own: usize, setup_hash: Option<Hash>) -> Self {
        let last = n_own.checked_sub(1).and_then(|at| u32::try_from(at).ok());
        let last = last.filter(|_| header.reply != ReplyLine::None);
        Self {
            seq,
            reply: last.map(|at| Place { seq, at }),
            header,
            setup_hash,
        }
    }

    /// Whether it needs another turn: its texts lie there or around it, or its setup.
    pub(crate) fn needs(&self, seq: u32) -> bool {
        let is_over = |span: &Span| span.from.seq <= seq && seq <= span.to.seq;
        let header = &self.header;
        self.seq != seq && (header.setup == seq || header.said.iter().any(is_over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(seq: u32, at: u32) -> Place {
        Place { seq, at }
    }

    #[test]
    fn runs_go_over_turns_and_break_where_something_lies_between() {
        let mut index = SessionIndex::default();
        for (seq, lines) in [(0, 2), (1, 0), (2, 3)] {
            let lines = (1..=lines).map(|at| [10 * seq + at; 16]).collect();
            index.set_lines(seq.into(), lines);
        }
        let all = [place(0, 0), place(0, 1), place(2, 0), place(2, 1)];
        let spans = index.spans(&all);
        assert_eq!(spans, [Span::from([0, 0, 2, 2])]);
        assert_eq!(index.places(&spans), all);
        let some = [place(0, 0), place(2, 0), place(2, 2), place(0, 1)];
        let spans = index.spans(&some);
        assert_eq!(spans.len(), 4);
        assert_eq!(index.places(&spans), some);
        let (second, first_again) = ([2; 16], [21; 16]);
        assert_eq!(index.find(&second, None), Some(place(0, 1)));
        assert_eq!(
            index.find(&first_again, Some(place(0, 0))),
            Some(place(2, 0))
        );
        index.set_lines(2, Vec::new());
        assert_eq!(index.find(&first_again, None), None);
        assert_eq!((index.n_lines, index.next_seq()), (2, 3));
    }
}
