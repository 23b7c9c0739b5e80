//! What vLLM is asked for beside a chat completion, taken out of its reply again.
//!
//! Training wants the ids that were sampled and their log-probabilities. vLLM puts them into the reply
//! when asked ([`WANTED`]): the ids of the prompt at the top of the first chunk, ids and log-probabilities
//! in each choice. A client that did not ask for them gets the bytes it would have got: each is put back to
//! the `null` that stands there unasked, and nothing else is touched. What is left to be seen are chunks
//! with an empty `delta`, which vLLM sends for tokens that its parsers hold back.
//!
//! The log-probabilities are those at temperature 1 over the full vocabulary, as long as vLLM runs with its
//! default `--logprobs-mode raw_logprobs`. What was the prompt and what was sampled is known of choice 0.
//!
//! Source: `ChatCompletionResponse` and `ChatCompletionStreamResponse` in vLLM's
//! `entrypoints/openai/chat_completion/protocol.py`.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::rewrite::{EventRewrite, Events, RawEvent};

/// The fields that a request gets, with their values; one that the client sent gives way.
pub const WANTED: [(&str, &str); 2] = [("logprobs", "true"), ("return_token_ids", "true")];

/// The most ids of one prompt, and of one reply, that are kept.
const MAX_IDS: usize = 1 << 20;

/// What the client asked for itself, and therefore keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// `logprobs: true`.
    pub logprobs: bool,
    /// `return_token_ids: true`.
    pub token_ids: bool,
}

/// What was sampled: one log-probability for each of `ids`, and none of the three is empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// What the model read.
    pub prompt_ids: Vec<u32>,
    /// What it said, the ending token included if one was drawn.
    pub ids: Vec<u32>,
    /// Log-probabilities of `ids` at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
}

/// What a stream's events said so far, for whoever records the reply.
#[derive(Debug, Clone, Default)]
pub struct Beside(Arc<Mutex<Gathered>>);

/// Takes out of each event what only we asked for.
#[derive(Debug)]
pub struct Strip {
    asked: Asked,
    beside: Beside,
}

/// The rewrite of a stream, and where what it takes out is to be found.
pub fn stream(asked: Asked) -> (Events<Strip>, Beside) {
    let beside = Beside::default();
    let strip = Strip {
        asked,
        beside: beside.clone(),
    };
    (Events::new(strip), beside)
}

/// The same for an unstreamed reply: its bytes, where they have to change, and what was sampled.
pub fn reply(asked: Asked, body: &[u8]) -> (Option<Vec<u8>>, Option<Sampled>) {
    let mut gathered = Gathered::default();
    let spans = read(asked, body, &mut gathered);
    let stripped = (!spans.is_empty()).then(|| {
        let mut out = Vec::with_capacity(body.len());
        without(body, spans, &mut out);
        out
    });
    (stripped, gathered.sampled())
}

#[derive(Debug, Default)]
struct Gathered {
    prompt_ids: Vec<u32>,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    /// Something of it was not to be read: what is there is not the whole.
    has_gap: bool,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    logprobs: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Logprobs {
    content: Option<Vec<Logprob>>,
}

#[derive(Deserialize)]
struct Logprob {
    logprob: f32,
}

// === impl Asked ===

impl Asked {
    /// What a request asks for, whose fields `field` gives.
    pub fn of(field: impl Fn(&str) -> Option<Value>) -> Self {
        let is_set = |name: &str| field(name) == Some(Value::Bool(true));
        Self {
            logprobs: is_set("logprobs"),
            token_ids: is_set("return_token_ids"),
        }
    }
}

// === impl Beside ===

impl Beside {
    /// What was sampled, when the stream has ended; `None` where it was not said, or not all of it.
    /// It is handed out once.
    pub fn take(&self) -> Option<Sampled> {
        self.with(std::mem::take).sampled()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Gathered) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Strip ===

impl EventRewrite for Strip {
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
        for line in event.raw.split_inclusive(|b| matches!(b, b'\n' | b'\r')) {
            let asked = self.asked;
            let spans = match line.strip_prefix(b"data:") {
                Some(data) => self.beside.with(|gathered| read(asked, data, gathered)),
                None => Vec::new(),
            };
            let begin = if spans.is_empty() { 0 } else { b"data:".len() };
            out.extend_from_slice(&line[..begin]);
            without(&line[begin..], spans, out);
        }
    }

    fn unread(&mut self, raw: &[u8], out: &mut Vec<u8>) {
        self.beside.with(|gathered| gathered.has_gap = true);
        out.extend_from_slice(raw);
    }

    fn finish(&mut self, _: &mut Vec<u8>) {}
}

// === impl Gathered ===

impl Gathered {
    fn sampled(self) -> Option<Sampled> {
        let n = self.ids.len();
        let is_whole = !self.has_gap && n > 0 && n == self.logprobs.len();
        (is_whole && !self.prompt_ids.is_empty()).then_some(Sampled {
            prompt_ids: self.prompt_ids,
            ids: self.ids,
            logprobs: self.logprobs,
        })
    }

    fn prompt(&mut self, ids: &RawValue) {
        match serde_json::from_str::<Vec<u32>>(ids.get()) {
            Ok(ids) if ids.len() <= MAX_IDS => self.prompt_ids = ids,
            Ok(_) | Err(_) => self.has_gap = true,
        }
    }

    fn choice(&mut self, choice: &Choice<'_>) {
        if choice.index.is_some_and(|index| index.get() != "0") {
            return;
        }
        if let Some(ids) = choice.token_ids {
            match serde_json::from_str::<Vec<u32>>(ids.get()) {
                Ok(ids) if self.ids.len() + ids.len() <= MAX_IDS => self.ids.extend(ids),
                Ok(_) | Err(_) => self.has_gap = true,
            }
        }
        if let Some(logprobs) = choice.logprobs {
            match serde_json::from_str::<Logprobs>(logprobs.get()) {
                Ok(logprobs) => self.logprobs(&logprobs.content.unwrap_or_default()),
                Err(_) => self.has_gap = true,
            }
        }
    }

    fn logprobs(&mut self, more: &[Logprob]) {
        let more = more.iter().map(|token| token.logprob);
        let room = MAX_IDS.saturating_sub(self.logprobs.len());
        self.has_gap |= more.len() > room || more.clone().any(|logprob| !logprob.is_finite());
        self.logprobs.extend(more.take(room));
    }
}

/// Reads one body or chunk; where in it stands what only we asked for. What is no completion has nothing.
fn read(asked: Asked, json: &[u8], gathered: &mut Gathered) -> Vec<Range<usize>> {
    let body = std::str::from_utf8(json).ok().and_then(object::<Body<'_>>);
    let Some(body) = body else {
        return Vec::new();
    };
    let mut spans = Vec::new();
    let mut take = |value: Option<&RawValue>| spans.extend(value.map(|value| place(json, value)));
    if let Some(ids) = body.prompt_token_ids {
        gathered.prompt(ids);
    }
    if !asked.token_ids {
        take(body.prompt_token_ids);
    }
    let choices = body.choices.iter().flatten();
    for choice in choices.filter_map(|choice| object::<Choice<'_>>(choice.get())) {
        gathered.choice(&choice);
        if !asked.token_ids {
            take(choice.token_ids);
        }
        if !asked.logprobs {
            take(choice.logprobs);
        }
    }
    spans.sort_unstable_by_key(|span| span.start);
    spans
}

/// Reads an object; serde would take an array for one, its elements in the order of the fields.
fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    let is_object = json.trim_start().starts_with('{');
    is_object.then(|| serde_json::from_str(json).ok()).flatten()
}

/// Where in `json` a value borrowed from it stands.
fn place(json: &[u8], value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr().addr() - json.as_ptr().addr();
    start..start + value.get().len()
}

/// Appends `json` with `null` in place of each of `spans`, which follow one another.
fn without(json: &[u8], spans: Vec<Range<usize>>, out: &mut Vec<u8>) {
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
