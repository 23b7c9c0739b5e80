//! The stored form of one turn: a few lines of text.
//!
//! The first line is a number, the second the [`Record`] as JSON. After them come the turn's own lines, one compact
//! JSON text each: the messages that its session did not have yet, then the reply. The lines of a session are numbered
//! in the order in which they came. The first line of a turn gives the number of its first own line. A request is a
//! list of runs of lines. If a client repeats its history and adds to it, the request is one run, however long the
//! session is.

use metaclaw_chat::{AgentId, ChainHash, SaidHash, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    keys,
    store::{StoreError, StoreResult, StoreSource, StoreTxn, Table},
    texts,
    turn::{PrefixBreak, Served, TurnMeta, TurnState},
    values::{self, TxnError, TxnResult, damaged},
};

/// Data that rarely changes within a session: parameters that affect the reply, and how the turn was served.
pub(crate) type Setup = (Map<String, Value>, Served);

/// A run of a session's lines, from one number to another (exclusive), and the turn that has the first one. Later turns
/// have the other lines.
pub(crate) type LineRun = (u32, u32, u32);

pub(crate) struct Stored {
    id: TurnId,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// A random key from when the turn was handed in. It identifies a turn that is written again after a failure.
    pub(crate) key: u64,
    pub(crate) meta: TurnMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<u32>,
    /// The messages of the request up to the parent's reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) old: Vec<LineRun>,
    /// The messages of the request after the parent's reply.
    pub(crate) new: Vec<LineRun>,
    /// The line with the reply, which is the last of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply: Option<u32>,
    /// Whether the reply is an assistant's, so that a request may continue it.
    pub(crate) is_answer: bool,
    /// The hash name of its [`Setup`] in the table `texts`.
    pub(crate) setup: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<PrefixBreak>,
}

// === impl Stored ===

impl Stored {
    pub(crate) fn get(source: &impl StoreSource, id: TurnId) -> TxnResult<Option<Self>> {
        let Some(bytes) = values::get(source, Table::Turns, &keys::turn(id))? else {
            return Ok(None);
        };
        match String::from_utf8(bytes) {
            Err(_) => Err(damaged_turn(id, "it is not UTF-8")),
            Ok(text) if text == LOST => {
                Err(damaged_turn(id, "it is lost, and only its place is left"))
            }
            Ok(text) => Ok(Some(Self { id, text })),
        }
    }

    pub(crate) fn get_read(
        source: &impl StoreSource,
        id: TurnId,
    ) -> TxnResult<Option<(Self, Record)>> {
        let stored = Self::get(source, id)?;
        let read = |stored: Self| stored.record().map(|record| (stored, record));
        stored.map(read).transpose()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, &str)> {
        let mut lines = self.text.lines();
        let first = lines.next().and_then(|first| first.parse().ok());
        (first.unwrap_or(u32::MAX)..).zip(lines.skip(1))
    }

    pub(crate) fn record(&self) -> TxnResult<Record> {
        serde_json::from_str(self.text.lines().nth(1).unwrap_or_default())
            .map_err(|error| damaged_turn(self.id, error.to_string()))
    }
}

// === impl Record ===

impl Record {
    pub(crate) fn get(source: &impl StoreSource, id: TurnId) -> TxnResult<Option<Self>> {
        Ok(Stored::get_read(source, id)?.map(|(_, record)| record))
    }

    pub(crate) fn put(
        &self,
        txn: &StoreTxn<'_>,
        id: TurnId,
        first: u32,
        lines: &[String],
    ) -> StoreResult<()> {
        let record =
            serde_json::to_string(self).map_err(|error| StoreError::Other(error.to_string()))?;
        let mut text = format!("{first}\n{record}\n");
        for line in lines {
            text.push_str(&texts::put_line(txn, id.session, line)?);
            text.push('\n');
        }
        values::put(txn, Table::Turns, &keys::turn(id), text.as_bytes())
    }

    pub(crate) fn lines(&self) -> impl DoubleEndedIterator<Item = u32> {
        let runs = self.old.iter().chain(&self.new);
        runs.flat_map(|(from, to, _)| *from..*to)
    }

    pub(crate) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        std::iter::once(&mut self.setup).chain(&mut self.tools)
    }

    /// Returns the hash of the conversation including the reply, if a request may continue it.
    pub(crate) fn after(&self) -> Option<ChainHash> {
        let chain = self.meta.chain;
        self.is_answer.then(|| chain.then_said(SaidHash::ASSISTANT))
    }
}

pub(crate) fn damaged_turn(id: TurnId, why: impl Into<String>) -> TxnError {
    damaged(format!("turn {id}"), why)
}

// === lost turns ===
//
// The places of a session have no gaps, because a new turn would otherwise get one in the middle. So a turn that is lost
// with a damaged page, or not restored yet, keeps its place: by an entry that cannot be read as a turn, and that no step
// takes.

/// The value at the place of a lost turn, and the reason of its state.
const LOST: &str = "lost";

pub(crate) fn put_lost(txn: &StoreTxn<'_>, agent: &AgentId, id: TurnId) -> StoreResult<()> {
    let (key, state) = (keys::turn(id), lost_state());
    values::put(txn, Table::Turns, &key, LOST.as_bytes())?;
    values::put_json(txn, Table::States, &key, &state)?;
    txn.put(Table::Index, &keys::index(state.kind(), agent, id), b"")
}

pub(crate) fn is_lost(source: &impl StoreSource, id: TurnId) -> TxnResult<bool> {
    let text = values::get(source, Table::Turns, &keys::turn(id))?;
    Ok(text.is_some_and(|text| text == LOST.as_bytes()))
}

pub(crate) fn remove_lost(txn: &StoreTxn<'_>, agent: &AgentId, id: TurnId) -> StoreResult<()> {
    let key = keys::turn(id);
    values::remove(txn, Table::Turns, &key)?;
    values::remove(txn, Table::States, &key)?;
    txn.remove(Table::Index, &keys::index(lost_state().kind(), agent, id))
}

fn lost_state() -> TurnState {
    let why = LOST.to_owned();
    TurnState::Spent { why }
}
