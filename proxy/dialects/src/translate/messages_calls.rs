//! The tool calls of a chat stream, whose pieces may come mixed, as blocks, which may not.

use serde_json::Value;

use super::{messages_reply::call_id, wire::filled};

/// The most calls of one reply that are told apart; what comes beyond is left out.
const MAX_CALLS: usize = 1024;

/// The calls of one reply so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The call whose block may still grow.
    open: Option<usize>,
}

#[derive(Debug)]
struct Call {
    /// Which of the calls upstream says it is; some servers do not.
    index: Option<u64>,
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
    /// The call's block has ended: another block began meanwhile.
    Late {
        name: String,
    },
}

// === impl Calls ===

impl Calls {
    /// Whether the model called anything.
    pub(super) fn is_any(&self) -> bool {
        !self.calls.is_empty()
    }

    /// A block of another kind has begun.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Takes one element of a delta's `tool_calls`.
    pub(super) fn add(&mut self, piece: &Value) -> Vec<Step> {
        let Some(at) = self.find(piece) else {
            return Vec::new();
        };
        let call = &mut self.calls[at];
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
            Some(_) => self.steps(at),
            None => Vec::new(),
        }
    }

    /// Calls that never got a name: their end has come, and they begin without one.
    pub(super) fn begin_nameless(&mut self) -> Vec<Step> {
        let waiting: Vec<usize> = (0..self.calls.len())
            .filter(|at| !self.calls[*at].has_begun)
            .collect();
        waiting.into_iter().flat_map(|at| self.steps(at)).collect()
    }

    fn steps(&mut self, at: usize) -> Vec<Step> {
        let call = &mut self.calls[at];
        let mut steps = Vec::new();
        let name = call.name.clone().unwrap_or_default();
        if !call.has_begun {
            call.has_begun = true;
            self.open = Some(at);
            let id = call.id.clone().unwrap_or_else(|| call_id(at));
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
            Step::Late { name }
        });
        steps
    }

    /// Which call a piece belongs to, as the reader of chat streams has it.
    fn find(&mut self, piece: &Value) -> Option<usize> {
        let index = piece["index"].as_u64();
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            // Servers that leave the index out send each call whole, or its pieces in a row.
            None if piece["id"].is_string() => None,
            None => self.calls.len().checked_sub(1),
        };
        if known.is_some() {
            return known;
        }
        if self.calls.len() == MAX_CALLS {
            return None;
        }
        self.calls.push(Call {
            index,
            id: None,
            name: None,
            held: String::new(),
            has_begun: false,
        });
        Some(self.calls.len() - 1)
    }
}
