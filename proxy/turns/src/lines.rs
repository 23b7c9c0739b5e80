//! Reads the lines of sessions.
//!
//! Whatever a request repeats, each stored turn is decoded once, and the work grows linearly with the stored and the
//! requested lines. A request may have a run for each of its messages: a client repeats a text, or two in turns.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
};

use metaclaw_chat::{Message, TurnId};
use serde::de::DeserializeOwned;

use crate::{
    keys,
    record::{LineRun, Stored, damaged_turn},
    store::StoreSource,
    texts,
    values::{TxnError, TxnResult},
    work,
};

const KEPT: usize = 32 << 20;

pub(crate) struct LineReader<'s, S> {
    source: &'s S,
    decoded: HashMap<TurnId, TurnLines>,
    n_bytes: usize,
    /// The turn that has a line, by that line and the turn from which on it was searched.
    places: HashMap<(u32, TurnId), TurnId>,
}

struct TurnLines {
    text: String,
    first: u32,
    spans: Vec<Range<usize>>,
}

// === impl LineReader ===

impl<'s, S: StoreSource> LineReader<'s, S> {
    pub(crate) fn new(source: &'s S) -> Self {
        Self {
            source,
            decoded: HashMap::new(),
            n_bytes: 0,
            places: HashMap::new(),
        }
    }

    pub(crate) fn messages(&mut self, id: TurnId, runs: &[LineRun]) -> TxnResult<Vec<Message>> {
        let mut found = Vec::new();
        for (from, to, seq) in runs {
            let mut seq = *seq;
            for line in *from..*to {
                seq = self.turn_of(id, line, seq)?;
                found.push(self.value(id, line, seq)?);
            }
        }
        Ok(found)
    }

    pub(crate) fn value<T>(&mut self, id: TurnId, line: u32, seq: u32) -> TxnResult<T>
    where
        T: DeserializeOwned + Clone + 'static,
    {
        let source = self.source;
        let lines = self.lines(keys::id(id.session, seq))?;
        let text = lines.and_then(|lines| lines.get(line));
        texts::value(source, text.ok_or_else(|| missing(id, line))?)
    }

    pub(crate) fn trim(&mut self) {
        if self.n_bytes > KEPT {
            *self = Self::new(self.source);
        }
    }

    /// Returns the turn that has a line: the given one, or a later one.
    fn turn_of(&mut self, id: TurnId, line: u32, from: u32) -> TxnResult<u32> {
        let from = keys::id(id.session, from);
        let mut at = self.places.get(&(line, from)).copied().unwrap_or(from);
        loop {
            let lines = self.lines(at)?.ok_or_else(|| missing(id, line))?;
            if lines.get(line).is_some() {
                break;
            }
            at.seq += 1;
        }
        if at != from {
            self.places.insert((line, from), at);
        }
        Ok(at.seq)
    }

    fn lines(&mut self, id: TurnId) -> TxnResult<Option<&TurnLines>> {
        Ok(match self.decoded.entry(id) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => match Stored::get(self.source, id)? {
                Some(stored) => {
                    let lines = TurnLines::split(stored.text);
                    self.n_bytes += lines.text.len();
                    Some(new.insert(lines))
                }
                None => None,
            },
        })
    }
}

// === impl TurnLines ===

impl TurnLines {
    fn split(text: String) -> Self {
        work::count(text.len());
        let mut at = 0;
        let spans = text.split_inclusive('\n').map(|line| {
            let from = at;
            at += line.len();
            from..from + line.trim_end_matches('\n').len()
        });
        let mut spans = spans.collect::<Vec<_>>().into_iter();
        let first = spans.next().and_then(|span| text[span].parse().ok());
        Self {
            first: first.unwrap_or(u32::MAX),
            spans: spans.skip(1).collect(),
            text,
        }
    }

    fn get(&self, line: u32) -> Option<&str> {
        let span = self.spans.get(line.checked_sub(self.first)? as usize)?;
        work::count(span.len());
        self.text.get(span.clone())
    }
}

fn missing(id: TurnId, line: u32) -> TxnError {
    damaged_turn(id, format!("line {line} is missing"))
}
