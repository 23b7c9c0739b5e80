//! Assembles a streamed chat completion.

use std::borrow::Cow;

use metaclaw_chat::{Message, Usage, finish_reason};
use serde_json::{Map, Value};

use super::thinking::thought;
use crate::{
    calls::CallPlaces,
    fields::{JsonFields, append_raw, value},
    grow::{append, keep_first},
    reply::{Accumulate, Reply},
};

#[derive(Debug, Default)]
pub(crate) struct ChatAccumulator {
    message: Map<String, Value>,
    calls: Vec<Map<String, Value>>,
    places: CallPlaces,
}

// === impl Accumulator ===

impl Accumulate for ChatAccumulator {
    const ENDS: &'static [&'static str] = &[];

    fn event(&mut self, _: &str, chunk: &JsonFields<'_>, reply: &mut Reply) {
        let field = |name: &str| {
            let text = chunk.text(name).filter(|text| !text.is_empty());
            text.map(Cow::into_owned)
        };
        reply.id = reply.id.take().or_else(|| field("id"));
        reply.model = reply.model.take().or_else(|| field("model"));
        // Some upstreams send a running count in every chunk. The last one is the total.
        let usage = chunk.value("usage");
        reply.usage = usage.as_ref().and_then(Usage::read).or(reply.usage);
        reply.error = chunk.value("error").or_else(|| reply.error.take());
        for choice in chunk.objects("choices") {
            if choice.number("index").unwrap_or(0) == 0 {
                self.choice(&choice, reply);
            }
        }
    }

    fn finish(mut self, reply: Reply) -> Reply {
        if !self.calls.is_empty() {
            let calls = self.calls.into_iter().map(Value::Object);
            self.message.insert("tool_calls".into(), calls.collect());
        }
        if self.message.is_empty() {
            return reply;
        }
        let role = || Value::String("assistant".into());
        self.message.entry("role").or_insert_with(role);
        let message = Message::try_from(Value::Object(self.message)).ok();
        Reply { message, ..reply }
    }
}

impl ChatAccumulator {
    fn choice(&mut self, choice: &JsonFields<'_>, reply: &mut Reply) {
        // Moonshot has it here.
        let usage = choice.value("usage");
        reply.usage = usage.as_ref().and_then(Usage::read).or(reply.usage);
        if let Some(reason) = choice.text("finish_reason") {
            reply.finish_reason = Some(finish_reason(&reason));
        }
        for (name, raw) in choice.object("delta").into_iter().flatten() {
            if name == "tool_calls" && raw.get().starts_with('[') {
                let Value::Array(pieces) = value(raw) else {
                    continue;
                };
                for piece in pieces {
                    self.call(piece);
                }
            } else if name == "content" && raw.get().starts_with('[') {
                self.parts(value(raw));
            } else if name == "role" {
                self.message.entry(name).or_insert_with(|| value(raw));
            } else {
                append_raw(&mut self.message, &name, raw);
            }
        }
    }

    fn parts(&mut self, parts: Value) {
        let Value::Array(parts) = parts else {
            return;
        };
        for part in parts {
            let (name, said) = match (thought(&part), part["text"].as_str()) {
                (Some(thought), _) => ("reasoning_content", thought.into()),
                (None, Some(text)) => ("content", text.into()),
                (None, None) => ("content", Value::Array(vec![part])),
            };
            append(&mut self.message, name.to_owned(), said);
        }
    }

    fn call(&mut self, piece: Value) {
        if !piece.is_object() {
            return;
        }
        let Some(at) = self.places.find(&piece) else {
            return;
        };
        if let Value::Object(mut fields) = piece {
            fields.shift_remove("index");
            self.calls.resize_with(self.places.len(), Map::new);
            merge_call(&mut self.calls[at], fields);
        }
    }
}

/// Merges a piece into a call. Names and ids keep their first value, because some servers repeat them. Arguments are
/// appended.
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
