//! The tool calls of a chat stream, whose pieces may come mixed, as blocks, which may not.

use serde_json::Value;

use super::wire::filled;
use crate::calls::{Places, call_id};

/// The most arguments of a call that wait for its name, in bytes.
const MAX_HELD: usize = 1 << 20;

/// The calls of one reply so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    places: Places,
    /// The call whose block may still grow.
    open: Option<usize>,
}

#[derive(Debug, Default)]
struct Call {
    id: Option<String>,
    name: Option<String>,
    /// Arguments that came before the name, without which no block can begin.
    held: String,
    has_begun: bool,
}

/// What a piece does to the blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Begin {
        id: String,
        name: String,
    },
    Grow {
        arguments: String,
    },
    /// Anthropic has no way to say it: why.
    Refuse {
        why: String,
    },
}

// === impl Calls ===

impl Calls {
    /// Whether the model called anything.
    pub(super) fn is_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// A block of another kind has begun.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Takes one element of a delta's `tool_calls`; `reply_id` is part of the id that a call without one gets.
    pub(super) fn add(&mut self, piece: &Value, reply_id: &str) -> Vec<Step> {
        let Some(at) = self.places.find(piece) else {
            return Vec::new();
        };
        self.all.resize_with(self.places.len(), Call::default);
        let call = &mut self.all[at];
        let function = &piece["function"];
        let keep = |known: &mut Option<String>, value| {
            if known.is_none() {
                *known = filled(value).map(str::to_owned);
            }
        };
        keep(&mut call.id, &piece["id"]);
        keep(&mut call.name, &function["name"]);
        match &function["arguments"] {
            Value::String(more) => call.held.push_str(more),
            whole @ Value::Object(_) => call.held.push_str(&whole.to_string()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
        }
        match call.name {
            Some(_) => self.steps(at, reply_id),
            None if call.held.len() > MAX_HELD => {
                let why = "a call's arguments came, but no name".to_owned();
                vec![Step::Refuse { why }]
            }
            None => Vec::new(),
        }
    }

    /// Calls that never got a name: their end has come, and they begin without one.
    pub(super) fn begin_nameless(&mut self, reply_id: &str) -> Vec<Step> {
        let waiting: Vec<usize> = (0..self.all.len())
            .filter(|at| !self.all[*at].has_begun)
            .collect();
        let steps = waiting.into_iter().flat_map(|at| self.steps(at, reply_id));
        steps.collect()
    }

    fn steps(&mut self, at: usize, reply_id: &str) -> Vec<Step> {
        let call = &mut self.all[at];
        let mut steps = Vec::new();
        let name = call.name.clone().unwrap_or_default();
        if !call.has_begun {
            call.has_begun = true;
            self.open = Some(at);
            let id = || call_id("call", reply_id, at);
            let id = call.id.clone().unwrap_or_else(id);
            steps.push(Step::Begin {
                id,
                name: name.clone(),
            });
        }
        let arguments = std::mem::take(&mut call.held);
        if arguments.is_empty() {
            return steps;
        }
        steps.push(if self.open == Some(at) {
            Step::Grow { arguments }
        } else {
            let why = format!("more arguments of the call of {name} came after its end");
            Step::Refuse { why }
        });
        steps
    }
}
