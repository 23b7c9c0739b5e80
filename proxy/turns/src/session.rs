//! Sessions: their entries and numbers, and the content of each so far, in memory, with which its next turn is compared.
//!
//! The log's thread keeps the latest of these between operations. If the store fails, they are dropped, because they may
//! contain data that was never stored.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use lru::LruCache;
use metaclaw_chat::{AgentId, SessionId, TurnId};
use serde::{Deserialize, Serialize};

use crate::{
    journal, keys,
    record::{LineRun, Record, Stored, damaged_turn},
    session_names::SessionNames,
    store::{StoreResult, StoreSource, StoreTxn, Table},
    text::Hash,
    texts,
    values::{self, TxnError, TxnResult},
};

/// Latest turns of each kind in a session that may be the parent of a new one, or be tried again. Of older turns, only
/// the lines are kept. A sub-agent may have many turns while the owner's turn waits for it.
const RECENT: usize = 12;
/// The hash of an unreadable or removed line. No text has this hash.
const UNKNOWN: Hash = [0; 16];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) agent: AgentId,
    pub(crate) session: SessionId,
}

#[derive(Debug, Default)]
pub(crate) struct SessionIndex {
    /// For each line its hash, and the turn that has it.
    lines: Vec<(Hash, u32)>,
    places: HashMap<Hash, u32>,
    /// The hashes of texts by those of the spellings in which clients write them.
    spellings: HashMap<Hash, Hash>,
    /// The latest turns with their places in the session, in the order in which they came.
    recent: VecDeque<(u32, Record)>,
    /// All turns by their keys. The turns of a failed transaction are written again, and may be there already.
    keys: HashMap<u64, u32>,
    /// The latest turn with each reply id, by the id's mark in the journal.
    replies: HashMap<[u8; 8], u32>,
    /// Whether some text was masked. A later turn repeats the secret in its token ids.
    pub(crate) is_masked: bool,
    pub(crate) next_seq: u32,
}

// === impl SessionRecord ===

impl SessionRecord {
    pub(crate) fn get(source: &impl StoreSource, number: u64) -> TxnResult<Option<Self>> {
        values::get_json(source, Table::Sessions, &keys::session(number))
    }

    pub(crate) fn of_turn(source: &impl StoreSource, id: TurnId) -> TxnResult<Self> {
        let session = Self::get(source, id.session)?;
        session.ok_or_else(|| damaged_turn(id, "its session is missing"))
    }

    pub(crate) fn number(
        source: &impl StoreSource,
        agent: &AgentId,
        session: &SessionId,
    ) -> TxnResult<Option<u64>> {
        let number = source.get(Table::Names, &keys::name(agent, session))?;
        Ok(number.and_then(|number| keys::read_u64(&number)))
    }
}

// === impl SessionIndex ===

impl SessionIndex {
    /// Reads a session.
    ///
    /// Unreadable turns are left out and logged, because they must not keep later turns from the log.
    pub(crate) fn load(source: &impl StoreSource, number: u64) -> TxnResult<Self> {
        let mut index = Self::default();
        for id in (0..).map(|seq| keys::id(number, seq)) {
            match Stored::get_read(source, id) {
                Ok(Some((stored, record))) => {
                    for (line, text) in stored.lines() {
                        let hash = texts::line_hash(text);
                        // A lost text gets a hash that no text has. So it is not found here, and is stored again when
                        // it occurs in a new turn.
                        let is_gone = texts::shared(text).is_some()
                            && !texts::is_used(source, number, &hash)?;
                        index.put_line(line, if is_gone { Hash::default() } else { hash }, id.seq);
                    }
                    index.put_turn(id.seq, record);
                }
                Ok(None) => break,
                Err(TxnError::Refused(error)) => {
                    tracing::warn!(%error, "a turn is left out");
                    index.next_seq = id.seq + 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(index)
    }

    pub(crate) fn recent(&self) -> impl Iterator<Item = &(u32, Record)> {
        self.recent.iter().rev()
    }

    pub(crate) fn with_key(&self, key: u64) -> Option<u32> {
        self.keys.get(&key).copied()
    }

    pub(crate) fn n_lines(&self) -> u32 {
        u32::try_from(self.lines.len()).unwrap_or(u32::MAX)
    }

    /// Returns the first of the `expected` lines that has a text, else the last line that has it.
    pub(crate) fn find(&self, hash: &Hash, expected: impl IntoIterator<Item = u32>) -> Option<u32> {
        let hash = self.spellings.get(hash).unwrap_or(hash);
        let at = expected.into_iter().find(|line| self.is_at(hash, *line));
        at.or_else(|| self.places.get(hash).copied())
    }

    pub(crate) fn with_reply(&self, reply_id: &str) -> Option<u32> {
        self.replies.get(&journal::mark(Some(reply_id))).copied()
    }

    pub(crate) fn is_at(&self, hash: &Hash, line: u32) -> bool {
        self.lines
            .get(line as usize)
            .is_some_and(|(known, _)| known == hash)
    }

    pub(crate) fn turn_of(&self, line: u32) -> Option<u32> {
        self.lines.get(line as usize).map(|(_, seq)| *seq)
    }

    pub(crate) fn put_line(&mut self, line: u32, hash: Hash, seq: u32) {
        let n_lines = self.lines.len().max(line as usize + 1);
        self.lines.resize(n_lines, (UNKNOWN, 0));
        self.lines[line as usize] = (hash, seq);
        self.places.insert(hash, line);
    }

    pub(crate) fn remove_lines(&mut self, seq: u32) {
        let lines = &mut self.lines;
        self.places.retain(|_, line| lines[*line as usize].1 != seq);
        let of_turn = lines.iter_mut().filter(|(_, turn)| *turn == seq);
        of_turn.for_each(|(hash, _)| *hash = UNKNOWN);
    }

    /// Returns the runs of a request's lines. Lines that the session does not have belong to the next turn.
    pub(crate) fn runs(&self, lines: &[u32], next: u32) -> Vec<LineRun> {
        let seq = |line: u32| self.lines.get(line as usize).map_or(next, |(_, seq)| *seq);
        let mut runs: Vec<LineRun> = Vec::new();
        for line in lines {
            match runs.last_mut() {
                Some((_, end, _)) if *end == *line && seq(line - 1) <= seq(*line) => *end += 1,
                _ => runs.push((*line, line + 1, seq(*line))),
            }
        }
        runs
    }

    pub(crate) fn put_spelling(&mut self, spelling: Hash, hash: Hash) {
        self.spellings.insert(spelling, hash);
    }

    pub(crate) fn put_turn(&mut self, seq: u32, turn: Record) {
        self.keys.insert(turn.key, seq);
        if let Some(reply_id) = &turn.meta.reply_id {
            self.replies.insert(journal::mark(Some(reply_id)), seq);
        }
        self.is_masked |= turn.meta.masked;
        let place = self.recent.iter_mut().find(|(old, _)| *old == seq);
        if let Some((_, old)) = place {
            *old = turn;
        } else {
            self.push_recent(seq, turn);
        }
        self.next_seq = self.next_seq.max(seq + 1);
    }

    /// Keeps the latest [`RECENT`] turns of each kind, so that side turns do not displace the owner's.
    fn push_recent(&mut self, seq: u32, turn: Record) {
        let kind = turn.meta.kind;
        self.recent.push_back((seq, turn));
        let is_same = |(_, turn): &(u32, Record)| turn.meta.kind == kind;
        if self.recent.iter().filter(|turn| is_same(turn)).count() > RECENT {
            let oldest = self.recent.iter().position(is_same);
            oldest.and_then(|place| self.recent.remove(place));
        }
    }

    pub(crate) fn n_bytes(&self) -> usize {
        let runs = self
            .recent
            .iter()
            .map(|(_, turn)| turn.old.len() + turn.new.len());
        size_of::<Self>()
            + self.lines.len() * size_of::<(Hash, u32)>()
            + self.places.len() * 2 * size_of::<(Hash, u32)>()
            + self.spellings.len() * 2 * size_of::<(Hash, Hash)>()
            + self.keys.len() * 2 * size_of::<(u64, u32)>()
            + self.replies.len() * 2 * size_of::<([u8; 8], u32)>()
            + self.recent.len() * size_of::<(u32, Record)>()
            + runs.sum::<usize>() * size_of::<LineRun>()
    }
}

/// Memory of all sessions together, in bytes. Beyond this, the least recently used sessions are read again from the log
/// when they continue.
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct SessionCache {
    sessions: LruCache<u64, SessionIndex>,
    n_bytes: usize,
    pub(crate) names: Arc<SessionNames>,
}

// === impl SessionCache ===

impl SessionCache {
    pub(crate) fn new(names: Arc<SessionNames>) -> Self {
        Self {
            sessions: LruCache::unbounded(),
            n_bytes: 0,
            names,
        }
    }

    /// Takes a session out. The caller puts it back after use.
    pub(crate) fn take(&mut self, number: u64) -> Option<SessionIndex> {
        let session = self.sessions.pop(&number)?;
        self.n_bytes -= session.n_bytes();
        Some(session)
    }

    pub(crate) fn put(&mut self, number: u64, session: SessionIndex) {
        self.n_bytes += session.n_bytes();
        self.sessions.put(number, session);
        // The session that was used last stays, however large it is, because its next turn would read all of it again.
        while self.n_bytes > MAX_BYTES
            && self.sessions.len() > 1
            && let Some((_, oldest)) = self.sessions.pop_lru()
        {
            self.n_bytes -= oldest.n_bytes();
        }
    }
}

/// The key of the next session's number. An agent's name is never empty, so the key is unique.
const NEXT: &[u8] = &[0];
/// Prefix of a number that was skipped, because a session of another log with a higher number was restored first.
const FREE: &[u8] = &[0, 0];
/// So many skipped numbers are recorded. Any further ones stay unused.
const MOST_FREE: u64 = 10_000;

pub(crate) fn next_number(txn: &StoreTxn<'_>) -> StoreResult<u64> {
    let stored = txn.get(Table::Names, NEXT)?;
    Ok(stored.and_then(|next| keys::read_u64(&next)).unwrap_or(1))
}

pub(crate) fn is_free_number(txn: &StoreTxn<'_>, number: u64) -> StoreResult<bool> {
    let is_beyond = number >= next_number(txn)? && number < u64::MAX;
    Ok(is_beyond || txn.get(Table::Names, &free_key(number))?.is_some())
}

pub(crate) fn take_number(txn: &StoreTxn<'_>, number: u64) -> StoreResult<()> {
    let next = next_number(txn)?;
    if number < next {
        return txn.remove(Table::Names, &free_key(number));
    }
    for passed in next.max(number.saturating_sub(MOST_FREE))..number {
        txn.put(Table::Names, &free_key(passed), b"")?;
    }
    txn.put(Table::Names, NEXT, &keys::session(number + 1))
}

pub(crate) fn pass_numbers(txn: &StoreTxn<'_>, number: u64) -> StoreResult<()> {
    if number < next_number(txn)? {
        return Ok(());
    }
    txn.put(Table::Names, NEXT, &keys::session(number.saturating_add(1)))
}

fn free_key(number: u64) -> Vec<u8> {
    [FREE, &keys::session(number)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_break_where_something_lies_between_and_where_an_earlier_turn_has_what_follows() {
        let mut index = SessionIndex::default();
        for (line, seq) in [0, 0, 1, 2, 2, 1].into_iter().enumerate() {
            let line = u32::try_from(line).unwrap();
            index.put_line(line, [10 + u8::try_from(line).unwrap(); 16], seq);
        }
        assert_eq!(index.runs(&[0, 1, 2, 3, 4], 3), [(0, 5, 0)]);
        let expected = [(3, 5, 2), (5, 7, 1), (0, 1, 0)];
        assert_eq!(index.runs(&[3, 4, 5, 6, 0], 3), expected);
        assert_eq!(index.find(&[12; 16], [9]), Some(2));
        index.remove_lines(1);
        assert_eq!(index.find(&[12; 16], [2]), None);
        assert_eq!(index.find(&[13; 16], []), Some(3));
        assert_eq!(index.n_lines(), 6);
    }

    #[test]
    fn a_text_is_found_where_it_is_expected_or_where_it_lies_last() {
        let mut index = SessionIndex::default();
        for (line, hash) in [[1; 16], [2; 16], [1; 16]].into_iter().enumerate() {
            index.put_line(u32::try_from(line).unwrap(), hash, 0);
        }
        assert_eq!(index.find(&[1; 16], []), Some(2));
        assert_eq!(index.find(&[1; 16], [9, 0]), Some(0));
        index.put_spelling([7; 16], [1; 16]);
        assert_eq!(index.find(&[7; 16], [0]), Some(0));
        assert_eq!(index.find(&[7; 16], [3]), Some(2));
    }

    #[test]
    fn the_least_recent_sessions_are_forgotten_and_the_bound_holds() {
        let mut cache = SessionCache::new(Arc::default());
        let n_sessions = 2 * MAX_BYTES / SessionIndex::default().n_bytes();
        for number in 0..n_sessions as u64 {
            cache.put(number, SessionIndex::default());
        }
        assert!(cache.take(0).is_none());
        assert!(cache.take(n_sessions as u64 - 1).is_some());
        let n_bytes = cache.sessions.len() * SessionIndex::default().n_bytes();
        assert!(n_bytes <= MAX_BYTES && n_bytes == cache.n_bytes);
    }
}
