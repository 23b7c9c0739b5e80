//! Extracts calls and thinking from a chat stream, chunk by chunk.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    call::{finish_with_calls, says_something},
    options::ToolCallOptions,
    split::{SplitPiece, Splitter},
};
use crate::{
    grow::append,
    json,
    rewrite::{EventRewrite, Events, RawEvent, Rewrite},
};

/// The largest number of choices of one reply that are handled separately. Others pass unchanged.
const MAX_CHOICES: usize = 64;

/// The longest field of a chunk that our own chunks repeat, in bytes.
const MAX_HEAD: usize = 256;

#[derive(Debug)]
struct CallStream {
    options: ToolCallOptions,
    choices: BTreeMap<u64, Choice>,
    head: Map<String, Value>,
}

#[derive(Debug)]
struct Choice {
    splitter: Splitter,
    n_calls: usize,
}

/// Extracts calls and thinking from the text of a streamed chat reply. Events without either pass unchanged.
pub fn stream(options: ToolCallOptions) -> Box<dyn Rewrite> {
    Box::new(Events::new(CallStream::new(options)))
}

// === impl Stream ===

impl CallStream {
    pub(super) fn new(options: ToolCallOptions) -> Self {
        Self {
            options,
            choices: BTreeMap::new(),
            head: Map::new(),
        }
    }

    /// Returns the chunks that replace one, or `None` if it stays the same.
    fn chunk(&mut self, mut chunk: Value) -> Option<Vec<Value>> {
        let body = chunk.as_object_mut()?;
        let Value::Array(mut choices) = body.get_mut("choices")?.take() else {
            return None;
        };
        self.remember(body);
        let mut before = Vec::new();
        let mut has_changed = false;
        for choice in &mut choices {
            if let Some(deltas) = self.choice(choice) {
                has_changed = true;
                let index = choice["index"].as_u64().unwrap_or(0);
                before.extend(deltas.iter().map(|delta| self.own(index, delta)));
            }
        }
        if !has_changed {
            return None;
        }
        let has_usage = chunk.get("usage").is_some_and(|usage| !usage.is_null());
        if has_usage || !choices.iter().all(says_nothing) {
            chunk["choices"] = choices.into();
            before.push(chunk);
        }
        Some(before)
    }

    /// Azure's first chunk, which is only about the prompt, has no reply id.
    fn remember(&mut self, chunk: &Map<String, Value>) {
        if self.head.get("id").is_some_and(says_something) {
            return;
        }
        let is_short = |value: &Value| match value {
            Value::String(text) => text.len() <= MAX_HEAD,
            Value::Bool(_) | Value::Number(_) => true,
            Value::Null | Value::Array(_) | Value::Object(_) => false,
        };
        let head = chunk.iter().filter(|(_, value)| is_short(value));
        self.head = head
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
    }

    /// Changes one choice. Returns the deltas that come before it. Returns `None` if it stays the same.
    fn choice(&mut self, choice: &mut Value) -> Option<Vec<Map<String, Value>>> {
        let index = choice["index"].as_u64().unwrap_or(0);
        let has_room = self.choices.len() < MAX_CHOICES || self.choices.contains_key(&index);
        if !has_room || !choice["delta"].is_object() {
            return None;
        }
        let options = &self.options;
        let reply_id = self.head.get("id").and_then(Value::as_str);
        let known = self.choices.entry(index).or_insert_with(|| Choice {
            splitter: Splitter::new(options.clone(), reply_id.unwrap_or_default()),
            n_calls: 0,
        });
        let said = choice["delta"]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let pieces = known.split(choice, &said);
        let stops_to_call = choice["finish_reason"] == "stop" && known.splitter.has_calls();
        let as_it_was = match pieces.as_slice() {
            [] => said.is_empty(),
            [SplitPiece::Text(text)] => *text == said,
            _ => false,
        };
        if as_it_was && !stops_to_call {
            return None;
        }
        if stops_to_call {
            finish_with_calls(choice);
        }
        let delta = choice["delta"].as_object_mut()?;
        delta.shift_remove("content");
        let mut deltas = known.deltas(pieces, std::mem::take(delta));
        *delta = deltas.pop().unwrap_or_default();
        Some(deltas)
    }

    fn flush(&mut self, whole: bool, out: &mut Vec<u8>) {
        let mut chunks = Vec::new();
        for (index, choice) in &mut self.choices {
            let mut pieces = Vec::new();
            choice.splitter.finish(whole, &mut pieces);
            if !pieces.is_empty() {
                let deltas = choice.deltas(pieces, Map::new());
                chunks.extend(deltas.into_iter().map(|delta| (*index, delta)));
            }
        }
        for (index, delta) in chunks {
            put(out, &self.own(index, &delta));
        }
    }

    fn own(&self, index: u64, delta: &Map<String, Value>) -> Value {
        let mut chunk = self.head.clone();
        let choice = json!({ "index": index, "delta": delta, "finish_reason": null });
        chunk.insert("choices".into(), json!([choice]));
        Value::Object(chunk)
    }
}

// === impl Choice ===

impl Choice {
    fn split(&mut self, choice: &Value, said: &str) -> Vec<SplitPiece> {
        let mut pieces = Vec::new();
        self.splitter.leave(&choice["delta"], &mut pieces);
        self.splitter.push(said, &mut pieces);
        if choice["finish_reason"].is_string() {
            self.splitter.finish(true, &mut pieces);
        }
        pieces
    }

    /// Returns the pieces as deltas, in order. The first is `first` with the pieces that fit into it.
    fn deltas(
        &mut self,
        pieces: Vec<SplitPiece>,
        first: Map<String, Value>,
    ) -> Vec<Map<String, Value>> {
        let mut done = Vec::new();
        let mut delta = first;
        for piece in pieces {
            // Clients read thinking, text and calls of one delta in this order.
            let follows = match &piece {
                SplitPiece::Thinking(_) => ["content", "tool_calls"].as_slice(),
                SplitPiece::Text(_) => &["tool_calls"],
                SplitPiece::Call(_) => &[],
            };
            if follows.iter().any(|field| delta.contains_key(*field)) {
                done.push(std::mem::take(&mut delta));
            }
            match piece {
                SplitPiece::Thinking(text) => {
                    append(&mut delta, "reasoning_content".to_owned(), text.into());
                }
                SplitPiece::Text(text) => append(&mut delta, "content".to_owned(), text.into()),
                SplitPiece::Call(call) => {
                    let mut call = Value::from(call);
                    call["index"] = self.n_calls.into();
                    self.n_calls += 1;
                    append(&mut delta, "tool_calls".to_owned(), json!([call]));
                }
            }
        }
        done.push(delta);
        done
    }
}

impl EventRewrite for CallStream {
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
        let data = event.event.as_ref().map_or("", |event| event.data.as_str());
        if data.trim() == "[DONE]" {
            self.flush(true, out);
        }
        let chunk = json::read(data).ok();
        match chunk.and_then(|chunk| self.chunk(chunk)) {
            Some(chunks) => chunks.iter().for_each(|chunk| put(out, chunk)),
            None => out.extend_from_slice(event.raw),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.flush(false, out);
    }
}

fn put(out: &mut Vec<u8>, chunk: &Value) {
    out.extend_from_slice(format!("data: {chunk}\n\n").as_bytes());
}

fn says_nothing(choice: &Value) -> bool {
    let is_nothing = |(name, value): (&String, &Value)| match name.as_str() {
        "index" => true,
        "delta" => value.as_object().is_some_and(Map::is_empty),
        _ => value.is_null(),
    };
    choice
        .as_object()
        .is_some_and(|choice| choice.iter().all(is_nothing))
}
