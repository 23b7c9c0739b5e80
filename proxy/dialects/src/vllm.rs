//! What vLLM is asked for beside a chat completion, taken out of its reply again.
//!
//! Training wants the ids that were sampled and their log-probabilities. vLLM puts them into the reply
//! when asked ([`WANTED`]): the ids of the prompt at the top of the first chunk, ids and log-probabilities
//! in each choice. A client that did not ask for them gets the bytes it would have got: each is put back to
//! the `null` that stands there unasked, a chunk that is there for its ids alone (for tokens that vLLM's
//! parsers hold back) is left out, and nothing else is touched. What was said is read from a copy
//! ([`sampled_sse`], [`sampled_json`]).
//!
//! Source: `ChatCompletionResponse` and `ChatCompletionStreamResponse` in vLLM's
//! `entrypoints/openai/chat_completion/protocol.py`, and what `serving.py` beside it makes of them.

mod sampled;

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

pub use self::sampled::{Sampled, sampled_json, sampled_sse};
use crate::{
    json,
    rewrite::{EventRewrite, Events, RawEvent},
};

/// The fields that a request gets, with their values; one that the client sent gives way.
pub const WANTED: [(&str, &str); 2] = [("logprobs", "true"), ("return_token_ids", "true")];

/// What the client asked for itself, and therefore keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestedIds {
    /// `logprobs: true`.
    pub logprobs: bool,
    /// `return_token_ids: true`.
    pub token_ids: bool,
}

/// Takes out of each event what only we asked for.
#[derive(Debug)]
pub struct Strip {
    requested: RequestedIds,
}

/// The rewrite of a stream.
pub fn stream(requested: RequestedIds) -> Events<Strip> {
    Events::new(Strip { requested })
}

/// The same for an unstreamed reply: its bytes, where they have to change.
pub fn reply(requested: RequestedIds, body: &[u8]) -> Option<Vec<u8>> {
    let read = Body::read(body)?;
    let spans = read.spans(requested, body);
    (!spans.is_empty()).then(|| {
        let mut out = Vec::with_capacity(body.len());
        without(body, &spans, &mut out);
        out
    })
}

/// A whole reply, or one chunk of a stream.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    logprobs: Option<&'a RawValue>,
}

// === impl RequestedIds ===

impl RequestedIds {
    /// What a request asks for, whose fields `field` gives.
    pub fn from_fields(field: impl Fn(&str) -> Option<Value>) -> Self {
        let is_set = |name: &str| field(name) == Some(Value::Bool(true));
        Self {
            logprobs: is_set("logprobs"),
            token_ids: is_set("return_token_ids"),
        }
    }

    /// The client asked for all of it: nothing is taken out.
    pub fn is_all(self) -> bool {
        self.logprobs && self.token_ids
    }

    /// Whether what a server says of a request that it refuses names a field that only we sent.
    pub fn is_blamed(self, said: &[u8]) -> bool {
        let names = |name: &str| said.windows(name.len()).any(|it| it == name.as_bytes());
        !self.token_ids && names("return_token_ids") || !self.logprobs && names("logprobs")
    }
}

// === impl Strip ===

impl EventRewrite for Strip {
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
        let begin = out.len();
        let mut is_left_out = false;
        let mut has_more = false;
        for line in event.raw.split_inclusive(|b| matches!(b, b'\n' | b'\r')) {
            let data = line.strip_prefix(b"data:").unwrap_or_default();
            let Some(body) = Body::read(data) else {
                has_more |= !line.trim_ascii().is_empty();
                out.extend_from_slice(line);
                continue;
            };
            is_left_out |= !self.requested.token_ids && body.is_for_its_ids();
            out.extend_from_slice(b"data:");
            without(data, &body.spans(self.requested, data), out);
        }
        if is_left_out && !has_more {
            out.truncate(begin);
        }
    }

    fn unread(&mut self, raw: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(raw);
    }

    fn finish(&mut self, _: &mut Vec<u8>) {}
}

// === impl Body ===

impl<'a> Body<'a> {
    /// What is no completion is none.
    fn read(json: &'a [u8]) -> Option<Self> {
        std::str::from_utf8(json).ok().and_then(object)
    }

    fn choices(&self) -> impl Iterator<Item = Choice<'a>> {
        let choices = self.choices.iter().flatten();
        choices.filter_map(|choice| object(choice.get()))
    }

    /// Where in `json` stands what only we asked for.
    fn spans(&self, requested: RequestedIds, json: &[u8]) -> Vec<Range<usize>> {
        let mut spans = Vec::new();
        let mut take = |value: Option<&RawValue>| {
            spans.extend(value.map(|value| json::span(json, value.get())));
        };
        if !requested.token_ids {
            take(self.prompt_token_ids);
        }
        for choice in self.choices() {
            if !requested.token_ids {
                take(choice.token_ids);
            }
            if !requested.logprobs {
                take(choice.logprobs);
            }
        }
        spans.sort_unstable_by_key(|span| span.start);
        spans
    }

    /// Whether a chunk says ids and nothing else: unasked, vLLM does not send it.
    fn is_for_its_ids(&self) -> bool {
        let mut choices = self.choices().peekable();
        let has_some = choices.peek().is_some();
        has_some && self.prompt_token_ids.is_none() && choices.all(|choice| choice.is_for_its_ids())
    }
}

// === impl Choice ===

impl Choice<'_> {
    fn is_for_its_ids(&self) -> bool {
        let is_empty = |delta: &RawValue| {
            let inside = delta.get().strip_prefix('{');
            inside.is_some_and(|inside| inside.trim_start() == "}")
        };
        let is_open = self.finish_reason.is_none();
        is_open && self.token_ids.is_some() && self.delta.is_some_and(is_empty)
    }
}

/// Reads an object; serde would take an array for one, its elements in the order of the fields.
fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    let is_object = json.trim_start().starts_with('{');
    is_object.then(|| serde_json::from_str(json).ok()).flatten()
}

/// Appends `json` with `null` in place of each of `spans`, which follow one another.
fn without(json: &[u8], spans: &[Range<usize>], out: &mut Vec<u8>) {
    let mut done = 0;
    for span in spans {
        out.extend_from_slice(&json[done..span.start]);
        out.extend_from_slice(b"null");
        done = span.end;
    }
    out.extend_from_slice(&json[done..]);
}

#[cfg(test)]
mod tests;
