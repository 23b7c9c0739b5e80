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

use serde_json::Value;

pub use self::sampled::{Sampled, sampled_json, sampled_sse};
use crate::{
    fields::Fields,
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

/// Fields that put a grammar over the reply; those of older versions too.
const GRAMMARS: [&str; 6] = [
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structural_tag",
];

/// Whether a request, whose fields `field` gives, has its reply constrained by a grammar. Then vLLM's log-probabilities are those
/// after the grammar's mask, in raw mode as well: a forced call summed to -8.1 nats where the model itself says -261.7.
pub fn is_constrained(field: impl Fn(&str) -> Option<Value>) -> bool {
    let is_other = |value: &Value, free: &[&str]| {
        let kind = value.as_str().or_else(|| value["type"].as_str());
        kind.is_some_and(|kind| !free.contains(&kind))
    };
    let forces_call = field("tool_choice").is_some_and(|it| is_other(&it, &["auto", "none"]));
    let format = field("response_format").or_else(|| field("text")?.get("format").cloned());
    let has_format = format.is_some_and(|it| is_other(&it, &["text"]));
    let is_set = |name: &&str| field(name).is_some_and(|value| !value.is_null());
    forces_call || has_format || GRAMMARS.iter().any(is_set)
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
    let spans = unasked(requested, &completion(body)?, body);
    (!spans.is_empty()).then(|| {
        let mut out = Vec::with_capacity(body.len());
        without(body, &spans, &mut out);
        out
    })
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
            let Some(chunk) = completion(data) else {
                has_more |= !line.trim_ascii().is_empty();
                out.extend_from_slice(line);
                continue;
            };
            is_left_out |= !self.requested.token_ids && is_for_its_ids(&chunk);
            out.extend_from_slice(b"data:");
            without(data, &unasked(self.requested, &chunk, data), out);
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

/// A whole reply, or one chunk of a stream; what is no object is none.
fn completion(json: &[u8]) -> Option<Fields<'_>> {
    str::from_utf8(json).ok().and_then(Fields::parse)
}

/// Where in `json`, which is the `completion`'s, stands what only we asked for.
fn unasked(requested: RequestedIds, completion: &Fields<'_>, json: &[u8]) -> Vec<Range<usize>> {
    let choices = completion.objects("choices");
    let of_choices = |name| choices.iter().map(move |choice| choice.get(name));
    let mut values = Vec::new();
    if !requested.token_ids {
        values.push(completion.get("prompt_token_ids"));
        values.extend(of_choices("token_ids"));
    }
    if !requested.logprobs {
        values.extend(of_choices("logprobs"));
    }
    let spans = values.into_iter().flatten();
    let mut spans: Vec<_> = spans.map(|value| json::span(json, value.get())).collect();
    spans.sort_unstable_by_key(|span| span.start);
    spans
}

/// Whether a chunk says ids and nothing else: unasked, vLLM does not send it.
fn is_for_its_ids(chunk: &Fields<'_>) -> bool {
    let choices = chunk.objects("choices");
    let says_ids = |choice: &Fields<'_>| {
        let is_open = choice.get("finish_reason").is_none();
        let has_ids = choice.get("token_ids").is_some();
        is_open && has_ids && choice.object("delta").is_some_and(|delta| delta.is_empty())
    };
    chunk.get("prompt_token_ids").is_none() && !choices.is_empty() && choices.iter().all(says_ids)
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
