//! What is written about one turn: a few lines of text.
//!
//! The first line is the [`Header`]. Behind it stand the turn's own lines, one JSON text each: the messages
//! that its session did not have yet, then the reply. If the turn has a setup of its own, an empty line and
//! the setup's lines follow. A long text is stored apart and stands as `#` and its hash: no JSON begins so,
//! and compact JSON has neither line breaks nor empty lines.

use metaclaw_chat::{ChainHash, TurnId, Usage};
use serde::{Deserialize, Serialize};

use crate::{
    keys,
    store::{Source, Table},
    text::{Hash, hash},
    texts,
    turn::{StreamEnd, TurnKind},
    values::{self, TxnError, damaged},
};

/// Texts of more bytes than this are stored apart, once for all who say them; shorter ones stand in the
/// record that says them first.
const INLINE: usize = 1_024;

/// The first line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Drawn when the turn was handed in: a turn that is written again after a failure is known by it.
    pub(crate) key: u64,
    pub(crate) kind: TurnKind,
    pub(crate) chain: ChainHash,
    /// The turn whose reply this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<u32>,
    /// Where what is new after the parent's reply begins.
    #[serde(default)]
    pub(crate) new_from: u32,
    /// The messages of the request: runs of lines.
    pub(crate) said: Vec<Span>,
    /// How many messages that are.
    pub(crate) n_said: u32,
    /// Whether the last of its own lines is the reply, and whose.
    pub(crate) reply: ReplyLine,
    /// The turn that has the setup, perhaps this one.
    pub(crate) setup: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finish_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
    pub(crate) end: StreamEnd,
    pub(crate) started_ms: u64,
    /// Milliseconds after `started_ms`; clocks may be set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_byte: Option<i64>,
    /// Milliseconds after `started_ms`.
    pub(crate) took: i64,
    /// The session ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) last: bool,
    /// Some of its text was masked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) masked: bool,
}

/// The last of a turn's own lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReplyLine {
    /// Is no reply.
    None,
    /// Is an assistant's: a request may continue it.
    Assistant,
    /// Is another's.
    Other,
}

/// Where a text lies in its session: the turn, and which of its own lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) seq: u32,
    pub(crate) at: u32,
}

/// All lines of a session from one place up to another (exclusive): turn, line, turn, line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 4]", into = "[u32; 4]")]
pub(crate) struct Span {
    pub(crate) from: Place,
    pub(crate) to: Place,
}

/// A JSON text of a record: its own, or one that is stored apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Text(String),
    Shared(Hash, String),
}

/// A record as it was read.
#[derive(Debug)]
pub(crate) struct Record {
    header: String,
    /// The turn's own lines.
    pub(crate) own: Vec<String>,
    /// The lines of its setup, if it has one.
    pub(crate) setup: Vec<String>,
}

// === impl Line ===

impl Line {
    /// As it will stand in a record.
    pub(crate) fn new(text: String) -> Self {
        if text.len() > INLINE {
            Self::Shared(hash(text.as_bytes()), text)
        } else {
            Self::Text(text)
        }
    }

    /// The hash of the text, wherever it is.
    pub(crate) fn hash(&self) -> Hash {
        match self {
            Self::Text(text) => hash(text.as_bytes()),
            Self::Shared(hash, _) => *hash,
        }
    }

    fn write(&self, to: &mut String) {
        match self {
            Self::Text(text) => to.push_str(text),
            Self::Shared(hash, _) => {
                to.push('#');
                to.push_str(&texts::hex(hash));
            }
        }
        to.push('\n');
    }
}

/// The hash of the text that a line stands for.
pub(crate) fn line_hash(line: &str) -> Hash {
    shared(line).unwrap_or_else(|| hash(line.as_bytes()))
}

/// The hash that a line names, if its text is stored apart.
pub(crate) fn shared(line: &str) -> Option<Hash> {
    line.strip_prefix('#').and_then(texts::unhex)
}

// === impl Record ===

impl Record {
    /// A record's text.
    pub(crate) fn write(
        header: &Header,
        own: &[Line],
        setup: &[Line],
    ) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string(header)?;
        text.push('\n');
        for line in own {
            line.write(&mut text);
        }
        if !setup.is_empty() {
            text.push('\n');
        }
        for line in setup {
            line.write(&mut text);
        }
        Ok(text)
    }

    /// One turn's record.
    pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<Option<Self>, TxnError> {
        let bytes = values::get(source, Table::Turns, &keys::turn(id))?;
        let text = bytes.map(String::from_utf8).transpose();
        let text = text.map_err(|_| damaged_turn(id, "it is not UTF-8"))?;
        Ok(text.as_deref().map(Self::read))
    }

    fn read(text: &str) -> Self {
        let mut lines = text.lines().map(str::to_owned);
        Self {
            header: lines.next().unwrap_or_default(),
            own: lines.by_ref().take_while(|line| !line.is_empty()).collect(),
            setup: lines.collect(),
        }
    }

    pub(crate) fn header(&self, id: TurnId) -> Result<Header, TxnError> {
        let header = serde_json::from_str(&self.header);
        header.map_err(|error| damaged_turn(id, error.to_string()))
    }

    /// How many lines of its own it has.
    pub(crate) fn n_own(&self) -> u32 {
        u32::try_from(self.own.len()).unwrap_or(u32::MAX)
    }

    /// Which of its own lines is the reply, if it has one.
    pub(crate) fn reply(&self, header: &Header) -> Option<u32> {
        let last = self.n_own().checked_sub(1);
        last.filter(|_| header.reply != ReplyLine::None)
    }

    /// The texts that it names.
    pub(crate) fn shared(&self) -> impl Iterator<Item = Hash> {
        self.own
            .iter()
            .chain(&self.setup)
            .filter_map(|line| shared(line))
    }
}

// === impl Header ===

impl Header {
    /// When the stream ended, in Unix milliseconds.
    pub(crate) fn ended_ms(&self) -> u64 {
        self.started_ms.wrapping_add_signed(self.took)
    }

    /// When the first byte came.
    pub(crate) fn first_byte_ms(&self) -> Option<u64> {
        let after = self.first_byte?;
        Some(self.started_ms.wrapping_add_signed(after))
    }

    /// The hash of the conversation with the reply, if a request may continue it.
    pub(crate) fn after(&self) -> Option<ChainHash> {
        let answered = metaclaw_chat::SaidHash::ASSISTANT;
        let is_answer = self.reply == ReplyLine::Assistant;
        is_answer.then(|| self.chain.then_said(answered))
    }
}

// === impl Span ===

impl From<[u32; 4]> for Span {
    fn from([from, from_at, to, to_at]: [u32; 4]) -> Self {
        let place = |seq, at| Place { seq, at };
        Self {
            from: place(from, from_at),
            to: place(to, to_at),
        }
    }
}

impl From<Span> for [u32; 4] {
    fn from(Span { from, to }: Span) -> Self {
        [from.seq, from.at, to.seq, to.at]
    }
}

/// That a turn does not read back.
pub(crate) fn damaged_turn(id: TurnId, why: impl Into<String>) -> TxnError {
    damaged(format!("turn {id}"), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_line_by_line() {
        let long = format!("\"{}\"", "x".repeat(INLINE));
        let lines = ["{\"a\":1}", "\"\"", &long].map(|line| Line::new(line.to_owned()));
        let header = Header {
            key: 7,
            kind: TurnKind::Main,
            chain: ChainHash([3; 32]),
            parent: None,
            new_from: 0,
            said: vec![[0, 1, 2, 3].into()],
            n_said: 2,
            reply: ReplyLine::Assistant,
            setup: 4,
            reply_id: Some("line\nbreak".to_owned()),
            finish_reason: None,
            usage: None,
            end: StreamEnd::Complete,
            started_ms: 5,
            first_byte: Some(-1),
            took: 6,
            last: false,
            masked: false,
        };
        let id = TurnId { session: 1, seq: 2 };
        for (own, setup) in [(&lines[..], &lines[..1]), (&[], &lines[..]), (&[], &[])] {
            let record = Record::read(&Record::write(&header, own, setup).unwrap());
            assert_eq!(record.header(id).unwrap(), header);
            assert_eq!(record.n_own() as usize, own.len());
            let hashes = |lines: &[Line]| lines.iter().map(Line::hash).collect::<Vec<_>>();
            let read = |lines: &[String]| lines.iter().map(|line| line_hash(line)).collect();
            let (own_read, setup_read): (Vec<_>, Vec<_>) = (read(&record.own), read(&record.setup));
            assert_eq!((own_read, setup_read), (hashes(own), hashes(setup)));
        }
        assert!(Record::read("").header(id).is_err());
    }
}
