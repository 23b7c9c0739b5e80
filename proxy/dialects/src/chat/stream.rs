//! A streamed chat completion, put together piece by piece.

use metaclaw_chat::Message;
use serde_json::{Map, Value};

use super::usage;
use crate::{
    grow::{append, keep_first},
    reply::{Accumulate, Reply, text},
    sse::SseEvent,
};

/// The most tool calls of one reply that are kept; no agent runs more, and a broken upstream may send any number.
const MAX_TOOL_CALLS: usize = 256;

/// Puts the chunks of a stream together.
#[derive(Debug, Default)]
pub(crate) struct Accumulator {
    reply: Reply,
    message: Map<String, Value>,
    calls: Vec<Call>,
}

/// A tool call under way, and the index by which its pieces name it.
#[derive(Debug)]
struct Call {
    index: Option<u64>,
    fields: Map<String, Value>,
}

// === impl Accumulator ===

impl Accumulate for Accumulator {
    fn event(&mut self, event: &SseEvent) {
        if event.data.trim() == "[DONE]" {
            self.reply.ended = true;
        } else if let Ok(Value::Object(chunk)) = serde_json::from_str(&event.data) {
            self.chunk(chunk);
        }
    }

    fn finish(mut self) -> Reply {
        if !self.calls.is_empty() {
            let calls = self
                .calls
                .into_iter()
                .map(|call| Value::Object(call.fields));
            self.message.insert("tool_calls".into(), calls.collect());
        }
        if !self.message.is_empty() {
            let role = || Value::String("assistant".into());
            self.message.entry("role").or_insert_with(role);
            self.reply.message = Message::try_from(Value::Object(self.message)).ok();
        }
        self.reply
    }
}

impl Accumulator {
    fn chunk(&mut self, mut chunk: Map<String, Value>) {
        let field = |name: &str| {
            chunk
                .get(name)
                .and_then(text)
                .filter(|text| !text.is_empty())
        };
        self.reply.id = self.reply.id.take().or_else(|| field("id"));
        self.reply.model = self.reply.model.take().or_else(|| field("model"));
        if let Some(usage) = chunk.get("usage").and_then(usage) {
            // Some upstreams count along in every chunk: the last count is the whole.
            self.reply.usage = Some(usage);
        }
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            self.reply.error = Some(error.clone());
        }
        if let Some(Value::Array(choices)) = chunk.remove("choices") {
            let first = |choice: &Value| choice["index"].as_u64().unwrap_or(0) == 0;
            for choice in choices.into_iter().filter(first) {
                self.choice(choice);
            }
        }
    }

    fn choice(&mut self, mut choice: Value) {
        if let Some(reason) = text(&choice["finish_reason"]) {
            self.reply.finish_reason = Some(reason);
        }
        let Some(Value::Object(delta)) = choice.get_mut("delta").map(Value::take) else {
            return;
        };
        for (name, value) in delta {
            match (name.as_str(), value) {
                ("tool_calls", Value::Array(pieces)) => {
                    for piece in pieces {
                        self.call(piece);
                    }
                }
                ("role", role) => {
                    self.message.entry(name).or_insert(role);
                }
                (_, value) => append(&mut self.message, name, value),
            }
        }
    }

    fn call(&mut self, piece: Value) {
        let Value::Object(mut piece) = piece else {
            return;
        };
        let index = piece.shift_remove("index").and_then(|index| index.as_u64());
        let starts = index.is_none() && piece.get("id").is_some_and(Value::is_string);
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            // Servers that leave the index out send each call whole, or its pieces in a row.
            None if starts => None,
            None => self.calls.len().checked_sub(1),
        };
        let at = known.unwrap_or(self.calls.len());
        if at == self.calls.len() {
            if at == MAX_TOOL_CALLS {
                return;
            }
            let fields = Map::new();
            self.calls.push(Call { index, fields });
        }
        merge_call(&mut self.calls[at].fields, piece);
    }
}

/// Names and ids stand as first given (some servers repeat them); arguments grow.
fn merge_call(call: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (name, value) in piece {
        match value {
            Value::Object(function) if name == "function" => {
                let known = call.entry(name).or_insert_with(|| Map::new().into());
                if let Value::Object(known) = known {
                    merge_function(known, function);
                }
            }
            value => keep_first(call, name, value),
        }
    }
}

fn merge_function(known: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (name, value) in piece {
        if name == "arguments" {
            append(known, name, value);
        } else {
            keep_first(known, name, value);
        }
    }
}
