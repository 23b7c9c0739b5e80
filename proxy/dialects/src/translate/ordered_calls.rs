//! Converts the tool calls of a chat stream, whose pieces may be interleaved, to blocks, which may not.
//!
//! Only one call's block is open at a time. A call that begins in the meantime waits until the arguments of the open
//! one are a complete JSON object, or until the reply ends. If a model makes one call after the other, they are
//! complete at once.

use std::{collections::VecDeque, mem};

use serde_json::Value;

use super::wire::filled;
use crate::calls::{CallPlaces, call_id};

const MAX_HELD: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<OrderedCall>,
    places: CallPlaces,
    open: Option<OpenCall>,
    waiting: VecDeque<usize>,
    n_held: usize,
}

#[derive(Debug, Default)]
struct OrderedCall {
    id: Option<String>,
    name: Option<String>,
    /// Arguments without a block yet, because it cannot begin without a name, or while another one is open.
    held: String,
    has_begun: bool,
}

#[derive(Debug)]
struct OpenCall {
    at: usize,
    extent: JsonExtent,
}

#[derive(Debug, Default)]
struct JsonExtent {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    is_whole: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlockStep {
    Begin {
        id: String,
        name: String,
    },
    Grow {
        arguments: String,
    },
    /// Blocks cannot express it, for this reason.
    Refuse {
        why: String,
    },
}

// === impl Calls ===

impl Calls {
    pub(super) fn is_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Returns whether more of the open call's arguments will come, so that its block cannot end yet.
    pub(super) fn is_unfinished(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.extent.is_whole)
    }

    pub(super) fn add(&mut self, piece: &Value, reply_id: &str) -> Vec<BlockStep> {
        let Some(at) = self.places.find(piece) else {
            return Vec::new();
        };
        self.all
            .resize_with(self.places.len(), OrderedCall::default);
        let call = &mut self.all[at];
        let was_nameless = call.name.is_none();
        let n_held = call.held.len();
        call.add(piece);
        self.n_held += call.held.len() - n_held;
        if was_nameless && call.name.is_some() {
            self.waiting.push_back(at);
        }
        let is_over = call.has_begun && self.open.as_ref().is_none_or(|open| open.at != at);
        if is_over {
            return self.refuse_more(at);
        }
        let mut steps = self.advance(reply_id);
        if self.n_held > MAX_HELD {
            let why = "a call's arguments came, but no name".to_owned();
            steps.push(BlockStep::Refuse { why });
        }
        steps
    }

    /// A block of another type begins. Waiting calls come before it.
    pub(super) fn close(&mut self, reply_id: &str) -> Vec<BlockStep> {
        let mut steps = Vec::new();
        while !self.waiting.is_empty() {
            self.open = None;
            steps.extend(self.advance(reply_id));
        }
        self.open = None;
        steps
    }

    /// The reply has ended. Writes waiting calls, and those that never got a name and begin without one.
    pub(super) fn end(&mut self, reply_id: &str) -> Vec<BlockStep> {
        let calls = self.all.iter().enumerate();
        let nameless = calls.filter(|(_, call)| call.name.is_none());
        self.waiting.extend(nameless.map(|(at, _)| at));
        self.close(reply_id)
    }

    /// Extends the open call, and begins the next ones once it is complete. No call waits if there is no more room.
    fn advance(&mut self, reply_id: &str) -> Vec<BlockStep> {
        let mut steps = Vec::new();
        loop {
            if let Some(open) = &mut self.open {
                let arguments = mem::take(&mut self.all[open.at].held);
                self.n_held -= arguments.len();
                open.extent.feed(&arguments);
                if !arguments.is_empty() {
                    steps.push(BlockStep::Grow { arguments });
                }
                if !open.extent.is_whole && self.n_held <= MAX_HELD {
                    return steps;
                }
            }
            let Some(at) = self.waiting.pop_front() else {
                return steps;
            };
            steps.push(self.begin(at, reply_id));
        }
    }

    fn begin(&mut self, at: usize, reply_id: &str) -> BlockStep {
        let extent = JsonExtent::default();
        self.open = Some(OpenCall { at, extent });
        let call = &mut self.all[at];
        call.has_begun = true;
        let id = || call_id("call", reply_id, at);
        BlockStep::Begin {
            id: call.id.clone().unwrap_or_else(id),
            name: call.name.clone().unwrap_or_default(),
        }
    }

    /// More of a call arrived after its block. White space is ignored.
    fn refuse_more(&mut self, at: usize) -> Vec<BlockStep> {
        let call = &mut self.all[at];
        let more = mem::take(&mut call.held);
        self.n_held -= more.len();
        if more.trim_ascii().is_empty() {
            return Vec::new();
        }
        let name = call.name.as_deref().unwrap_or_default();
        let why = format!("more arguments of the call of {name} came after its end");
        vec![BlockStep::Refuse { why }]
    }
}

// === impl Call ===

impl OrderedCall {
    fn add(&mut self, piece: &Value) {
        let function = &piece["function"];
        let keep = |known: &mut Option<String>, value| {
            if known.is_none() {
                *known = filled(value).map(str::to_owned);
            }
        };
        keep(&mut self.id, &piece["id"]);
        keep(&mut self.name, &function["name"]);
        match &function["arguments"] {
            Value::String(more) => self.held.push_str(more),
            whole @ Value::Object(_) => self.held.push_str(&whole.to_string()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
        }
    }
}

// === impl Extent ===

impl JsonExtent {
    fn feed(&mut self, json: &str) {
        for byte in json.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_text => self.is_escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_whole |= self.depth == 0;
                }
                _ => {}
            }
        }
    }
}
