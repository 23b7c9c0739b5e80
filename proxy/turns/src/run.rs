//! Turns of one session that one transaction writes: a run.
//!
//! What a transaction costs, it costs by the entry: a page of the database is copied for each, however
//! short. So turns of a session that come together share their entries: one value holds their records, and
//! one entry says that they are captured. A turn that comes alone is a run of one.
//!
//! A turn whose reply did not end well stays alone: another try may take its place. So does one at a place
//! that was another's: its id is known outside, and what is asked about it is looked up at once, while a
//! run is written when its transaction is.

use std::{borrow::Cow, collections::BTreeMap};

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    index, keys,
    store::Table,
    times::{self, Ended, Mark},
    txn::{Fault, Txn},
};

/// Turns in a run.
pub(crate) const MAX_TURNS: usize = 64;
/// Bytes of a run's records: to read one is to unpack them all.
const MAX_BYTES: usize = 16 << 10;

/// A turn to be written.
#[derive(Debug)]
pub(crate) struct New {
    /// When its reply ended, in Unix milliseconds.
    pub(crate) ended_ms: u64,
    /// Stands for its reply's id.
    pub(crate) reply: Mark,
    /// The text of its record.
    pub(crate) record: Vec<u8>,
}

/// Turns of a session, one behind the other.
#[derive(Debug)]
struct Run {
    agent: AgentId,
    turns: Vec<Turn>,
    /// Their texts, one behind the other.
    records: Vec<u8>,
}

/// One of a run.
#[derive(Debug, Clone, Copy)]
struct Turn {
    ended_ms: u64,
    reply: Mark,
    /// Where its record begins among the others.
    begin: usize,
}

/// The runs that a transaction is going to write, by their first turns.
#[derive(Debug, Default)]
pub(crate) struct Runs(BTreeMap<TurnId, Run>);

// === impl Run ===

impl Run {
    fn has_room(&self, new: &New) -> bool {
        self.turns.len() < MAX_TURNS && self.records.len() + new.record.len() <= MAX_BYTES
    }

    fn of(agent: &AgentId, new: &New) -> Self {
        let mut run = Self {
            agent: agent.clone(),
            turns: Vec::new(),
            records: Vec::new(),
        };
        run.push(new);
        run
    }

    fn push(&mut self, new: &New) {
        self.turns.push(Turn {
            ended_ms: new.ended_ms,
            reply: new.reply,
            begin: self.records.len(),
        });
        self.records.extend_from_slice(&new.record);
    }

    fn pop(&mut self) {
        if let Some(turn) = self.turns.pop() {
            self.records.truncate(turn.begin);
        }
    }

    fn record(&self, n: usize) -> Option<&[u8]> {
        let begin = self.turns.get(n)?.begin;
        let next = self.turns.get(n + 1);
        let end = next.map_or(self.records.len(), |next| next.begin);
        self.records.get(begin..end)
    }

    /// Writes its turns, from `first` on; when they ended is to be written still.
    fn write(
        &self,
        txn: &mut Txn<'_>,
        first: TurnId,
    ) -> Result<impl Iterator<Item = Ended> + use<'_>, Fault> {
        txn.put_long(Table::Turns, &keys::turn(first), &self.together())?;
        index::put_captured(txn, &self.agent, first, self.turns.len());
        let ended = (first.seq..)
            .zip(&self.turns)
            .map(move |(seq, turn)| Ended {
                at_ms: turn.ended_ms,
                id: TurnId { seq, ..first },
                reply: turn.reply,
            });
        Ok(ended)
    }

    /// The value of table `turns`: a record alone, or a line of their lengths and the records.
    fn together(&self) -> Cow<'_, [u8]> {
        if self.turns.len() == 1 {
            return Cow::Borrowed(&self.records);
        }
        let ends = self.turns.iter().skip(1).map(|turn| turn.begin);
        let ends = ends.chain([self.records.len()]);
        let lengths = self.turns.iter().zip(ends);
        let lengths: Vec<usize> = lengths.map(|(turn, end)| end - turn.begin).collect();
        let line = format!("{lengths:?}").replace(' ', "");
        let value = [line.as_bytes(), b"\n", &self.records];
        Cow::Owned(value.concat())
    }
}

// === impl Runs ===

impl Runs {
    /// Adds a turn behind the last of its session's, or begins a run with it.
    pub(crate) fn push(&mut self, agent: &AgentId, id: TurnId, new: &New) {
        let last = self.0.range_mut(..id).next_back();
        if let Some((first, run)) = last
            && (id.session, id.seq as usize)
                == (first.session, first.seq as usize + run.turns.len())
            && run.has_room(new)
        {
            run.push(new);
            return;
        }
        self.0.insert(id, Run::of(agent, new));
    }

    /// Takes back the turn that was added last to its session.
    pub(crate) fn pop(&mut self, id: TurnId) {
        if self.0.remove(&id).is_some() {
            return;
        }
        if let Some((_, run)) = self.0.range_mut(..id).next_back() {
            run.pop();
        }
    }

    /// The text of a turn's record, if it is one of these.
    pub(crate) fn record(&self, id: TurnId) -> Option<&[u8]> {
        let (first, run) = self.0.range(..=id).next_back()?;
        let n = (first.session == id.session).then(|| id.seq - first.seq)?;
        run.record(n as usize)
    }

    /// Writes them all.
    pub(crate) fn write(self, txn: &mut Txn<'_>) -> Result<(), Fault> {
        let mut ended = Vec::new();
        for (first, run) in &self.0 {
            ended.extend(run.write(txn, *first)?);
        }
        times::put(txn, ended);
        Ok(())
    }
}

/// Writes a turn that stays alone.
pub(crate) fn write_alone(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    id: TurnId,
    turn: &New,
) -> Result<(), Fault> {
    let ended = Run::of(agent, turn).write(txn, id)?.collect();
    times::put(txn, ended);
    Ok(())
}

// === the value of table `turns`, as `Run::together` makes it ===

/// The lengths of a value's records, and where the first begins.
fn lengths(value: &[u8]) -> Result<(Vec<usize>, usize), String> {
    // A record begins with an object.
    if value.first() != Some(&b'[') {
        return Ok((vec![value.len()], 0));
    }
    let end = memchr::memchr(b'\n', value).ok_or("its lengths have no end")?;
    let lengths = serde_json::from_slice(&value[..end]).map_err(|error| error.to_string())?;
    Ok((lengths, end + 1))
}

/// How many records a value holds.
pub(crate) fn count(value: &[u8]) -> Result<usize, String> {
    lengths(value).map(|(lengths, _)| lengths.len())
}

/// The `n`th record of a value, if it holds as many.
pub(crate) fn nth(mut value: Vec<u8>, n: usize) -> Result<Option<Vec<u8>>, String> {
    let (lengths, begin) = lengths(&value)?;
    let Some(length) = lengths.get(n) else {
        return Ok(None);
    };
    let before = lengths[..n].iter().copied();
    let at = before.fold(begin, usize::saturating_add);
    let end = at.saturating_add(*length);
    if end > value.len() {
        return Err(format!("record {n} of it ends early"));
    }
    value.truncate(end);
    value.drain(..at);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(record: &str) -> New {
        New {
            ended_ms: 0,
            reply: Mark::default(),
            record: record.into(),
        }
    }

    fn id(session: u64, seq: u32) -> TurnId {
        TurnId { session, seq }
    }

    fn sizes(runs: &Runs) -> Vec<(TurnId, usize)> {
        let runs = runs.0.iter();
        runs.map(|(first, run)| (*first, run.turns.len())).collect()
    }

    #[test]
    fn records_that_lie_together_are_told_apart() {
        for records in [&["{}\n"][..], &["{\"a\":1}\n[]\n", "{}\nx\n", "{}\n"]] {
            let turns: Vec<New> = records.iter().map(|record| new(record)).collect();
            let agent = AgentId::default_agent();
            let mut run = Run::of(&agent, &turns[0]);
            turns[1..].iter().for_each(|turn| run.push(turn));
            let value = run.together().into_owned();
            assert_eq!(count(&value).unwrap(), records.len());
            for (n, record) in records.iter().enumerate() {
                let found = nth(value.clone(), n).unwrap();
                assert_eq!(found.as_deref(), Some(record.as_bytes()));
            }
            assert_eq!(nth(value.clone(), records.len()).unwrap(), None);
            for cut in 1..value.len() {
                let last = nth(value[..cut].to_vec(), records.len() - 1);
                assert!(records.len() == 1 || last.is_err(), "cut at {cut}");
            }
        }
        let huge = format!("[{0},{0}]\n", usize::MAX);
        assert!(nth(huge.into_bytes(), 1).is_err());
    }

    #[test]
    fn a_run_is_of_one_session_without_gaps_and_bounded() {
        let agent = AgentId::default_agent();
        let mut runs = Runs::default();
        for at in [id(1, 7), id(1, 8), id(2, 9), id(1, 10), id(1, 11)] {
            runs.push(&agent, at, &new("{}"));
        }
        assert_eq!(sizes(&runs), [(id(1, 7), 2), (id(1, 10), 2), (id(2, 9), 1)]);
        assert_eq!(runs.record(id(1, 8)), Some(&b"{}"[..]));
        for none in [id(1, 6), id(1, 9), id(1, 12), id(2, 10), id(3, 0)] {
            assert_eq!(runs.record(none), None, "{none}");
        }
        runs.pop(id(1, 11));
        runs.pop(id(1, 10));
        runs.pop(id(2, 9));
        assert_eq!(sizes(&runs), [(id(1, 7), 2)]);

        runs.push(&agent, id(1, 9), &new(&"x".repeat(MAX_BYTES)));
        assert!(runs.0.contains_key(&id(1, 9)));
        for seq in 0..2 * MAX_TURNS {
            runs.push(&agent, id(4, u32::try_from(seq).unwrap()), &new("{}"));
        }
        assert!(sizes(&runs).iter().all(|(_, n)| *n <= MAX_TURNS));
        assert_eq!(sizes(&runs).len(), 4);
    }
}
