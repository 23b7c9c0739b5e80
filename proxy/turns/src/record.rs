//! What is written about one turn: a few lines of text.
//!
//! The first has a number, the second the [`Record`] as JSON. Behind them stand the turn's own lines, one compact JSON
//! text each: the messages that its session did not have yet, then the reply. The lines of a session are numbered as
//! they came, from the one on that the first line of their turn says. A request is a list of runs of them: a client
//! that repeats its history and adds to it has one run, however long the session is.

use metaclaw_chat::{ChainHash, Message, SaidHash, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    keys,
    lost::LOST,
    store::{Source, StoreError, StoreTxn, Table},
    texts,
    turn::{Served, TurnMeta},
    values::{self, TxnError, damaged},
};

/// What of a turn seldom changes within a session: what steers the answer, and under what it was served.
pub(crate) type Setup = (Map<String, Value>, Served);

/// A run of a session's lines, from one up to another (exclusive), and the turn that has the first. Those that
/// have the others stand behind that.
pub(crate) type Run = (u32, u32, u32);

/// What stands in table `turns`.
pub(crate) struct Stored {
    id: TurnId,
    text: String,
}

/// What is known of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Drawn when the turn was handed in: a turn that is written again after a failure is known by it.
    pub(crate) key: u64,
    pub(crate) meta: TurnMeta,
    /// The turn whose reply this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<u32>,
    /// The messages of the request up to the parent's reply,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) old: Vec<Run>,
    /// and those behind it.
    pub(crate) new: Vec<Run>,
    /// The line with the reply: the last of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply: Option<u32>,
    /// Whether the reply is an assistant's: a request may continue it.
    pub(crate) is_answer: bool,
    /// The name of its [`Setup`] in table `texts`.
    pub(crate) setup: String,
    /// The name of its tools there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<String>,
}

// === impl Stored ===

impl Stored {
    /// One turn as it is stored.
    pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<Option<Self>, TxnError> {
        let bytes = values::get(source, Table::Turns, &keys::turn(id))?;
        let text = bytes.map(String::from_utf8).transpose();
        let text = text.map_err(|_| damaged_turn(id, "it is not UTF-8"))?;
        if text.as_deref() == Some(LOST) {
            return Err(damaged_turn(id, "it is lost, and only its place is left"));
        }
        Ok(text.map(|text| Self { id, text }))
    }

    /// One turn as it is stored, and its record.
    pub(crate) fn get_read(
        source: &impl Source,
        id: TurnId,
    ) -> Result<Option<(Self, Record)>, TxnError> {
        let stored = Self::get(source, id)?;
        let read = |stored: Self| stored.record().map(|record| (stored, record));
        stored.map(read).transpose()
    }

    /// The turn's own lines with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, &str)> {
        let mut lines = self.text.lines();
        let first = lines.next().and_then(|first| first.parse().ok());
        (first.unwrap_or(u32::MAX)..).zip(lines.skip(1))
    }

    pub(crate) fn record(&self) -> Result<Record, TxnError> {
        let record = self.text.lines().nth(1).unwrap_or_default();
        let record = serde_json::from_str(record);
        record.map_err(|error| damaged_turn(self.id, error.to_string()))
    }
}

// === impl Record ===

impl Record {
    pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<Option<Self>, TxnError> {
        Ok(Stored::get_read(source, id)?.map(|(_, record)| record))
    }

    /// Writes a turn whose own lines are numbered from `first` on.
    pub(crate) fn put(
        &self,
        txn: &StoreTxn<'_>,
        id: TurnId,
        first: u32,
        lines: &[String],
    ) -> Result<(), StoreError> {
        let record = serde_json::to_string(self);
        let record = record.map_err(|error| StoreError::Other(error.to_string()))?;
        let mut text = format!("{first}\n{record}\n");
        for line in lines {
            text.push_str(&texts::put_line(txn, id.session, line)?);
            text.push('\n');
        }
        values::put(txn, Table::Turns, &keys::turn(id), text.as_bytes())
    }

    /// The lines of the request, one by one.
    pub(crate) fn lines(&self) -> impl DoubleEndedIterator<Item = u32> {
        let runs = self.old.iter().chain(&self.new);
        runs.flat_map(|(from, to, _)| *from..*to)
    }

    /// The names of its texts that are stored apart, beside those of its lines.
    pub(crate) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        std::iter::once(&mut self.setup).chain(&mut self.tools)
    }

    /// The hash of the conversation with the reply, if a request may continue it.
    pub(crate) fn after(&self) -> Option<ChainHash> {
        let chain = self.meta.chain;
        self.is_answer.then(|| chain.then_said(SaidHash::ASSISTANT))
    }
}

/// The messages of a turn, in order: runs of a session's lines. No record is read for more than its lines.
pub(crate) fn messages(
    source: &impl Source,
    id: TurnId,
    runs: &[Run],
) -> Result<Vec<Message>, TxnError> {
    let mut found = Vec::new();
    for (from, to, seq) in runs {
        let (mut next, mut seq) = (*from, *seq);
        while next < *to {
            let stored = Stored::get(source, keys::id(id.session, seq))?;
            let stored =
                stored.ok_or_else(|| damaged_turn(id, format!("line {next} is missing")))?;
            for (line, text) in stored.lines().take_while(|(line, _)| line < to) {
                if line == next {
                    found.push(texts::value(source, text)?);
                    next += 1;
                }
            }
            seq += 1;
        }
    }
    Ok(found)
}

/// That a turn does not read back.
pub(crate) fn damaged_turn(id: TurnId, why: impl Into<String>) -> TxnError {
    damaged(format!("turn {id}"), why)
}
