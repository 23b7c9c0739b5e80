//! Adds fields to a chat completion for vLLM, and removes their results from its reply.
//!
//! Training needs the sampled ids and their log-probabilities. vLLM adds them to the reply on request ([`WANTED`]): the
//! prompt's ids at the top of the first chunk, ids and log-probabilities in each choice. A client that did not request
//! them gets the same bytes as without this request: each value is replaced by `null`, a chunk that exists only for its
//! ids (for tokens that vLLM's parsers hold back) is left out, and nothing else is changed. The values are read from a
//! copy ([`sampled_sse`], [`sampled_json`]).
//!
//! The source is `ChatCompletionResponse` and `ChatCompletionStreamResponse` in vLLM's
//! `entrypoints/openai/chat_completion/protocol.py`, and `serving.py` beside it.

mod sampled;

use std::ops::Range;

use serde_json::Value;

pub use self::sampled::{Sampled, sampled_json, sampled_sse};
use crate::{
    fields::JsonFields,
    json,
    rewrite::{EventRewrite, Events, RawEvent},
};

/// The fields that are added to a request, with their values. They replace the client's.
pub const WANTED: [(&str, &str); 2] = [("logprobs", "true"), ("return_token_ids", "true")];

/// The values that the client requested itself, and therefore keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestedIds {
    /// `logprobs: true`.
    pub logprobs: bool,
    /// `return_token_ids: true`.
    pub token_ids: bool,
}

const GRAMMARS: [&str; 6] = [
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structural_tag",
];

/// Returns whether a request, whose fields `field` returns, has its reply constrained by a grammar. In that case vLLM's
/// log-probabilities are those after the grammar's mask, even in raw mode: a forced call summed to -8.1 nats where the
/// model itself gives -261.7.
pub fn is_constrained(field: impl Fn(&str) -> Option<Value>) -> bool {
    let is_other = |value: &Value, free: &[&str]| {
        let kind = value.as_str().or_else(|| value["type"].as_str());
        kind.is_some_and(|kind| !free.contains(&kind))
    };
    let forces_call = field("tool_choice").is_some_and(|it| is_other(&it, &["auto", "none"]));
    let format = field("response_format").or_else(|| field("text")?.get("format").cloned());
    let has_format = format.is_some_and(|format| is_other(&format, &["text"]));
    let is_set = |name: &&str| field(name).is_some_and(|value| !value.is_null());
    forces_call || has_format || GRAMMARS.iter().any(is_set)
}

/// Removes from each event what only the proxy requested.
#[derive(Debug)]
pub struct Strip {
    requested: RequestedIds,
}

/// Makes the rewrite of a stream.
pub fn stream(requested: RequestedIds) -> Events<Strip> {
    Events::new(Strip { requested })
}

/// Changes an unstreamed reply. Returns its bytes if they have to change.
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
    /// Returns what a request asks for. `field` returns its fields.
    pub fn from_fields(field: impl Fn(&str) -> Option<Value>) -> Self {
        let is_set = |name: &str| field(name) == Some(Value::Bool(true));
        Self {
            logprobs: is_set("logprobs"),
            token_ids: is_set("return_token_ids"),
        }
    }

    /// Returns whether the client requested everything, so that nothing is removed.
    pub fn is_all(self) -> bool {
        self.logprobs && self.token_ids
    }

    /// Returns whether a server's refusal names a field that only the proxy sent.
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

    fn finish(&mut self, _: &mut Vec<u8>) {}
}

fn completion(json: &[u8]) -> Option<JsonFields<'_>> {
    str::from_utf8(json).ok().and_then(JsonFields::parse)
}

/// Returns the positions in `json`, the text of `completion`, of what only the proxy requested.
fn unasked(requested: RequestedIds, completion: &JsonFields<'_>, json: &[u8]) -> Vec<Range<usize>> {
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

/// Returns whether a chunk contains only ids. Without the request, vLLM does not send it.
fn is_for_its_ids(chunk: &JsonFields<'_>) -> bool {
    let choices = chunk.objects("choices");
    let says_ids = |choice: &JsonFields<'_>| {
        let is_open = choice.get("finish_reason").is_none();
        let has_ids = choice.get("token_ids").is_some();
        is_open && has_ids && choice.object("delta").is_some_and(|delta| delta.is_empty())
    };
    chunk.get("prompt_token_ids").is_none() && !choices.is_empty() && choices.iter().all(says_ids)
}

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
