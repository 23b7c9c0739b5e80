//! Reads vLLM's sampled ids from a copy of its reply.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::completion;
use crate::{fields::JsonFields, sse::SseReader};

pub(super) const MAX_IDS: usize = 1 << 20;

const AT_ONCE: usize = 64 << 10;

/// vLLM's value for a log-probability that is missing or lower.
const NO_LOGPROB: f32 = -9_999.0;

/// The sampled ids: one log-probability for each of `ids`, and none of the three is empty.
///
/// The log-probabilities are those at temperature 1 over the full vocabulary, as long as vLLM runs with its default
/// `--logprobs-mode raw_logprobs`. Of several choices, it is the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// The ids of the reply, including the end token if one was sampled.
    pub ids: Vec<u32>,
    /// Log-probabilities of `ids` at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
}

/// Reads the sampled ids from an event stream, or returns `None` if some are missing.
///
/// The caller has to know whether the stream itself is complete.
pub fn sampled_sse(stream: &[u8]) -> Option<Sampled> {
    let mut reader = SseReader::new();
    let mut gathered = GatheredIds::default();
    for piece in stream.chunks(AT_ONCE) {
        for event in reader.feed(piece) {
            gathered.add(event.data.as_bytes());
        }
    }
    gathered.has_gap |= reader.n_skipped() > 0;
    if let Some(event) = reader.finish() {
        gathered.add(event.data.as_bytes());
    }
    gathered.sampled()
}

/// Reads them from an unstreamed reply.
pub fn sampled_json(body: &[u8]) -> Option<Sampled> {
    let mut gathered = GatheredIds::default();
    gathered.add(body);
    gathered.sampled()
}

#[derive(Debug, Default)]
pub(super) struct GatheredIds {
    pub(super) prompt_ids: Vec<u32>,
    pub(super) ids: Vec<u32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) has_gap: bool,
    /// The server's token count for all choices together.
    n_counted: Option<u64>,
    has_others: bool,
}

#[derive(Deserialize)]
struct ReplyLogprobs {
    content: Option<Vec<Logprob>>,
}

#[derive(Deserialize)]
struct Logprob {
    logprob: f32,
}

// === impl Gathered ===

impl GatheredIds {
    pub(super) fn add(&mut self, json: &[u8]) {
        let Some(body) = completion(json) else {
            return;
        };
        if let Some(ids) = body.get("prompt_token_ids") {
            self.prompt(ids);
        }
        for choice in body.objects("choices") {
            self.choice(&choice);
        }
        let usage = body.object("usage");
        let n_counted = usage.and_then(|usage| usage.number("completion_tokens"));
        self.n_counted = n_counted.or(self.n_counted);
    }

    /// Returns the ids if they are complete. vLLM before 0.12 leaves out of a stream what its parsers hold back. The
    /// count reveals this, if the client requested it.
    pub(super) fn sampled(self) -> Option<Sampled> {
        let n = self.ids.len();
        let is_counted =
            self.has_others || self.n_counted.is_none_or(|counted| counted == n as u64);
        let is_whole = !self.has_gap && n > 0 && n == self.logprobs.len() && is_counted;
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

    fn choice(&mut self, choice: &JsonFields<'_>) {
        if choice.get("index").is_some_and(|index| index.get() != "0") {
            self.has_others = true;
            return;
        }
        if let Some(ids) = choice.get("token_ids") {
            match serde_json::from_str::<Vec<u32>>(ids.get()) {
                Ok(ids) if self.ids.len() + ids.len() <= MAX_IDS => self.ids.extend(ids),
                Ok(_) | Err(_) => self.has_gap = true,
            }
        }
        if let Some(logprobs) = choice.get("logprobs") {
            match serde_json::from_str::<ReplyLogprobs>(logprobs.get()) {
                Ok(logprobs) => self.logprobs(&logprobs.content.unwrap_or_default()),
                Err(_) => self.has_gap = true,
            }
        }
    }

    fn logprobs(&mut self, more: &[Logprob]) {
        let more = more.iter().map(|token| token.logprob);
        let room = MAX_IDS.saturating_sub(self.logprobs.len());
        let is_known = |logprob: f32| logprob.is_finite() && logprob > NO_LOGPROB;
        self.has_gap |= more.len() > room || !more.clone().all(is_known);
        self.logprobs.extend(more.take(room));
    }
}
