//! What is written about one turn: a few lines of text, then packed.
//!
//! The first line is the [`Header`]; after it come, one JSON text a line, the setup (only where it
//! differs from the base's), each message that the base does not have, and the reply. A text that is
//! a blob stands as `#` and its hash: no JSON begins so, and compact JSON has no line breaks.

use std::{borrow::Cow, sync::Arc};

use metaclaw_chat::{ChainHash, TurnId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    blobs::{self, Hash},
    error::LogError,
    text::JsonText,
    turn::{Served, StreamEnd, TurnKind},
    txn::{Fault, Source},
};

/// Bytes that most records stay below.
const TYPICAL: usize = 1 << 10;

/// The first line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header<'a> {
    /// Drawn when the turn was handed in: a turn that is written again after a failure is known by it.
    pub(crate) key: u64,
    pub(crate) kind: TurnKind,
    pub(crate) chain: ChainHash,
    /// The turn whose reply this one goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<u32>,
    /// Where what is new after the parent's reply begins.
    #[serde(default)]
    pub(crate) new_from: u32,
    /// The turn that `parts` copy from, and that has the setup if `setup` is false. Always an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<u32>,
    /// How the messages are put together.
    pub(crate) parts: Cow<'a, [Part]>,
    /// Whether the setup is among the lines.
    pub(crate) setup: bool,
    /// Whether a reply is among the lines.
    pub(crate) reply: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finish_reason: Option<Cow<'a, str>>,
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
}

/// A run of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Part {
    /// `[at, n]` of the base's messages, its reply counted as the last.
    Copy([u32; 2]),
    /// The next `n` lines.
    New(u32),
}

/// A JSON text of a record: its own, or a blob's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Text(Arc<str>),
    Blob(Hash),
}

/// What seldom changes within a session, in its own line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    pub(crate) params: Map<String, Value>,
    /// Without its `system_block`.
    pub(crate) served: Served,
    pub(crate) tools: Option<Line>,
    pub(crate) block: Option<Line>,
}

#[derive(Serialize, Deserialize)]
struct SetupLine<'a> {
    params: Cow<'a, Map<String, Value>>,
    served: Cow<'a, Served>,
    tools: bool,
    block: bool,
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) header: Header<'static>,
    pub(crate) setup: Option<Setup>,
    pub(crate) new: Vec<Line>,
    pub(crate) reply: Option<Line>,
}

/// A record's text. `setup` has its own lines; after it come the messages that the base does not have,
/// and the reply.
pub(crate) fn write<'a>(
    header: &Header<'_>,
    setup: Option<&[u8]>,
    lines: impl Iterator<Item = &'a Line>,
) -> Result<Vec<u8>, String> {
    let mut text = Vec::with_capacity(TYPICAL);
    serde_json::to_writer(&mut text, header).map_err(|error| error.to_string())?;
    text.push(b'\n');
    text.extend(setup.unwrap_or_default());
    for line in lines {
        line.write(&mut text);
    }
    Ok(text)
}

// === impl Line ===

impl Line {
    /// As it will stand in a record.
    pub(crate) fn of(text: &JsonText) -> Self {
        if text.is_blob() {
            Self::Blob(text.hash)
        } else {
            Self::Text(Arc::clone(&text.text))
        }
    }

    /// The hash of the text, wherever it is.
    pub(crate) fn hash(&self) -> Hash {
        match self {
            Self::Text(text) => *blake3::hash(text.as_bytes()).as_bytes(),
            Self::Blob(hash) => *hash,
        }
    }

    /// The JSON value.
    pub(crate) fn value<T: serde::de::DeserializeOwned>(
        &self,
        source: &impl Source,
    ) -> Result<T, Fault> {
        let read = |text: &str| {
            serde_json::from_str(text).map_err(|error| {
                Fault::Refused(LogError::Damaged {
                    what: "a text of a record".to_owned(),
                    why: error.to_string(),
                })
            })
        };
        match self {
            Self::Text(text) => read(text),
            Self::Blob(hash) => read(&blobs::get(source, hash)?),
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Text(text) => to.extend(text.as_bytes()),
            Self::Blob(hash) => {
                to.push(b'#');
                to.extend(blake3::Hash::from_bytes(*hash).to_hex().as_bytes());
            }
        }
        to.push(b'\n');
    }

    fn read(line: &str) -> Result<Self, String> {
        match line.strip_prefix('#') {
            None => Ok(Self::Text(Arc::from(line))),
            Some(hash) => blobs::unhex(hash)
                .map(Self::Blob)
                .ok_or_else(|| format!("{hash:?} is no hash")),
        }
    }
}

// === impl Setup ===

impl Setup {
    /// Its lines. Equal setups have equal ones.
    pub(crate) fn text(&self) -> Result<Vec<u8>, serde_json::Error> {
        let line = SetupLine {
            params: Cow::Borrowed(&self.params),
            served: Cow::Borrowed(&self.served),
            tools: self.tools.is_some(),
            block: self.block.is_some(),
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        for line in self.tools.iter().chain(&self.block) {
            line.write(&mut text);
        }
        Ok(text)
    }

    fn read<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let line: SetupLine<'_> = read_json(lines.next())?;
        let mut next = |there: bool| there.then(|| read_line(lines.next())).transpose();
        Ok(Self {
            params: line.params.into_owned(),
            served: line.served.into_owned(),
            tools: next(line.tools)?,
            block: next(line.block)?,
        })
    }
}

// === impl Record ===

impl Record {
    /// Reads what [`write`] wrote.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let header: Header<'_> = read_json(lines.next())?;
        let setup = header.setup.then(|| Setup::read(&mut lines)).transpose()?;
        let n_new: usize = header.parts.iter().map(|part| part.n_new()).sum();
        let new = (0..n_new).map(|_| read_line(lines.next()));
        let new = new.collect::<Result<_, _>>()?;
        let reply = header.reply.then(|| read_line(lines.next())).transpose()?;
        Ok(Self {
            header,
            setup,
            new,
            reply,
        })
    }

    /// One turn's record.
    pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<Option<Self>, Fault> {
        let Some(bytes) = source.record(id)? else {
            return Ok(None);
        };
        let text = str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned());
        text.and_then(Self::read)
            .map(Some)
            .map_err(|why| damaged(id, why))
    }
}

// === impl Header ===

impl Header<'_> {
    /// When the stream ended, in Unix milliseconds.
    pub(crate) fn ended_ms(&self) -> u64 {
        self.started_ms.wrapping_add_signed(self.took)
    }

    /// When the first byte came.
    pub(crate) fn first_byte_ms(&self) -> Option<u64> {
        let after = self.first_byte?;
        Some(self.started_ms.wrapping_add_signed(after))
    }

    /// Messages in the request.
    pub(crate) fn n_messages(&self) -> usize {
        let n = |part: &Part| match part {
            Part::Copy([_, n]) | Part::New(n) => *n as usize,
        };
        self.parts.iter().map(n).sum()
    }
}

impl Part {
    fn n_new(self) -> usize {
        match self {
            Self::Copy(_) => 0,
            Self::New(n) => n as usize,
        }
    }
}

/// That a turn does not read back.
pub(crate) fn damaged(id: TurnId, why: impl Into<String>) -> Fault {
    Fault::Refused(LogError::Damaged {
        what: format!("turn {id}"),
        why: why.into(),
    })
}

fn read_line(line: Option<&str>) -> Result<Line, String> {
    Line::read(line.ok_or("it ends early")?)
}

fn read_json<T: serde::de::DeserializeOwned>(line: Option<&str>) -> Result<T, String> {
    serde_json::from_str(line.ok_or("it ends early")?).map_err(|error| error.to_string())
}
