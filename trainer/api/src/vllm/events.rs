//! Converts the server-sent events of `POST /v1/completions` to events of a sampler.

use std::collections::{BTreeMap, VecDeque};

use metaclaw_trainer_terms::{FinishReason, SampleEvent, SampledToken, SamplingEnd};
use serde::Deserialize;

/// The longest line of an event; the first one repeats the prompt's ids.
const LONGEST: usize = 16 << 20;
const ID: &str = "token_id:";

/// Converts bytes to events.
///
/// The ends of replies are held back until the usage arrives, which contains the number of cached tokens.
#[derive(Debug)]
pub(super) struct VllmEvents {
    n_top: usize,
    n_open: u32,
    line: Vec<u8>,
    ready: VecDeque<SampleEvent>,
    ends: Vec<(u32, FinishReason)>,
    is_complete: bool,
}

#[derive(Debug, Deserialize)]
struct StreamChunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<VllmUsage>,
    error: Option<VllmMessage>,
}

/// An error of the server. Unlike OpenAI's, its code is a number.
#[derive(Debug, Deserialize)]
pub(super) struct VllmErrorBody {
    pub(super) error: VllmMessage,
}

#[derive(Debug, Deserialize)]
pub(super) struct VllmMessage {
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
struct Choice {
    index: u32,
    token_ids: Option<Vec<u32>>,
    logprobs: Option<VllmLogprobs>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct VllmLogprobs {
    token_logprobs: Vec<Option<f32>>,
    #[serde(default)]
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
}

#[derive(Debug, Deserialize)]
struct VllmUsage {
    prompt_tokens_details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    cached_tokens: Option<usize>,
}

// === impl VllmEvents ===

impl VllmEvents {
    pub(super) fn new(n: u32, n_top: usize) -> Self {
        Self {
            n_top,
            n_open: n,
            line: Vec::new(),
            ready: VecDeque::new(),
            ends: Vec::new(),
            is_complete: false,
        }
    }

    pub(super) fn pop(&mut self) -> Option<SampleEvent> {
        self.ready.pop_front()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Takes bytes, cut anywhere.
    ///
    /// # Errors
    /// Returns the server's own failure, or an error for what cannot be read.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > LONGEST {
                return Err(format!("an event has more than {LONGEST} bytes"));
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.take_line(&line)?;
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), String> {
        let Some(data) = line.trim_ascii().strip_prefix(b"data:") else {
            return Ok(());
        };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            return self.done();
        }
        let chunk: StreamChunk = serde_json::from_slice(data)
            .map_err(|error| format!("an event cannot be read: {error}"))?;
        if let Some(error) = chunk.error {
            return Err(format!("it gave up: {}", error.message));
        }
        for choice in chunk.choices {
            self.take(choice)?;
        }
        if let Some(usage) = chunk.usage {
            let cached = usage
                .prompt_tokens_details
                .and_then(|details| details.cached_tokens);
            self.flush(cached.unwrap_or(0));
        }
        Ok(())
    }

    fn take(&mut self, choice: Choice) -> Result<(), String> {
        let ids = choice.token_ids.unwrap_or_default();
        let (logprobs, mut tops) = match choice.logprobs {
            Some(logprobs) => (logprobs.token_logprobs, logprobs.top_logprobs),
            None => (Vec::new(), Vec::new()),
        };
        if logprobs.len() != ids.len() {
            let (n, n_ids) = (logprobs.len(), ids.len());
            return Err(format!("{n} log-probabilities came for {n_ids} ids"));
        }
        tops.resize(ids.len(), None);
        for ((id, logprob), top) in ids.into_iter().zip(logprobs).zip(tops) {
            let logprob = logprob.filter(|value| value.is_finite());
            let logprob = logprob.ok_or_else(|| {
                format!("the log-probability of id {id} is no number: the adapter or the weights are damaged")
            })?;
            let token = SampledToken {
                id,
                text: None,
                logprob,
                // The server sends one of the two.
                sampling_logprob: logprob,
                top: likeliest(top.unwrap_or_default(), self.n_top)?,
            };
            let choice = choice.index;
            self.ready.push_back(SampleEvent::Token { choice, token });
        }
        if let Some(reason) = choice.finish_reason {
            let reason = match reason.as_str() {
                "stop" => FinishReason::Stop,
                "length" => FinishReason::Length,
                other => return Err(format!("it ended the reply: {other}")),
            };
            self.ends.push((choice.index, reason));
        }
        Ok(())
    }

    fn flush(&mut self, n_cached: usize) {
        for (choice, reason) in self.ends.drain(..) {
            let end = SamplingEnd { reason, n_cached };
            self.n_open = self.n_open.saturating_sub(1);
            self.ready.push_back(SampleEvent::End { choice, end });
        }
    }

    fn done(&mut self) -> Result<(), String> {
        self.flush(0);
        self.is_complete = true;
        if self.n_open > 0 {
            return Err(format!("{} replies have no end", self.n_open));
        }
        Ok(())
    }
}

/// Returns the `n` most probable ids, the most probable first. The server adds the sampled id to them.
fn likeliest(top: BTreeMap<String, f32>, n: usize) -> Result<Vec<(u32, f32)>, String> {
    let mut likely = Vec::with_capacity(top.len());
    for (token, logprob) in top.into_iter().filter(|_| n > 0) {
        let id = token.strip_prefix(ID).and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| format!("{token:?} is no id, as in token_id:60"))?;
        likely.push((id, logprob));
    }
    likely.sort_by(|one: &(u32, f32), other| other.1.total_cmp(&one.1));
    likely.truncate(n);
    Ok(likely)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = r#"data: {"choices":[{"index":0,"text":" an","logprobs":{"token_logprobs":[-0.5],"top_logprobs":[{"token_id:354":-0.5,"token_id:7":-0.25}]},"finish_reason":null,"prompt_token_ids":[1,2],"token_ids":[354]}]}

data: {"choices":[{"index":0,"text":"","logprobs":{"token_logprobs":[-0.25],"top_logprobs":[{"token_id:2":-0.25}]},"finish_reason":"stop","token_ids":[2]}]}

data: {"choices":[],"usage":{"prompt_tokens":2,"prompt_tokens_details":{"cached_tokens":128}}}

data: [DONE]

"#;

    fn read(
        pieces: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<SampleEvent>, String> {
        let mut events = VllmEvents::new(1, 1);
        for piece in pieces {
            events.push(piece.as_ref())?;
        }
        assert!(events.is_complete());
        Ok(std::iter::from_fn(|| events.pop()).collect())
    }

    #[test]
    fn a_stream_says_the_same_however_it_is_cut() {
        let token = |id, logprob: f32, top| SampleEvent::Token {
            choice: 0,
            token: SampledToken {
                id,
                text: None,
                logprob,
                sampling_logprob: logprob,
                top: vec![top],
            },
        };
        let end = SamplingEnd {
            reason: FinishReason::Stop,
            n_cached: 128,
        };
        let whole = read([STREAM]).unwrap();
        let expected = [
            token(354, -0.5, (7, -0.25)),
            token(2, -0.25, (2, -0.25)),
            SampleEvent::End { choice: 0, end },
        ];
        assert_eq!(whole, expected);
        for n in [1, 7, 100] {
            assert_eq!(read(STREAM.as_bytes().chunks(n)).unwrap(), whole, "{n}");
        }
    }

    #[test]
    fn what_is_no_whole_reply_is_an_error_in_words() {
        let error = |text: &str| read([text]).unwrap_err();
        let dead = "data: {\"error\":{\"message\":\"EngineCore died\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n";
        assert_eq!(error(dead), "it gave up: EngineCore died");
        assert_eq!(
            error(&STREAM.replace("\"stop\"", "\"abort\"")),
            "it ended the reply: abort"
        );
        assert_eq!(
            error(&STREAM.replace("[-0.5]", "[]")),
            "0 log-probabilities came for 1 ids"
        );
        assert!(error(&STREAM.replace("[-0.5]", "[null]")).contains("id 354 is no number"));
        assert_eq!(error("data: [DONE]\n"), "1 replies have no end");
        assert!(error("data: {\n").starts_with("an event cannot be read"));
    }
}
