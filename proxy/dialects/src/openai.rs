//! OpenAI chat completions: a reply put together from its stream or read whole, and errors.

mod accumulate;

use metaclaw_chat::{Message, Usage};
use serde_json::{Value, json};

pub use self::accumulate::Accumulator;
use crate::{ErrorBody, sse::SseReader};

/// What a model answered: choice 0, as far as the bytes go.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The upstream's id of the reply, as in `chatcmpl-123`.
    pub id: Option<String>,
    /// The model that the upstream says has answered.
    pub model: Option<String>,
    /// The assistant's message, unknown fields included; `None` where not a piece of one came.
    pub message: Option<Message>,
    /// Why the model stopped. Some upstreams never say.
    pub finish_reason: Option<String>,
    /// What it cost, where the upstream says so.
    pub usage: Option<Usage>,
    /// The stream's own `[DONE]` came.
    pub ended: bool,
    /// An error that the upstream sent inside a reply it had begun with status 200.
    pub error: Option<Value>,
    /// Events of the stream that were too long to read: where there are any, the message has gaps.
    pub n_skipped: u64,
}

// === impl Reply ===

impl Reply {
    /// Reads a whole event stream, or as much of one as came.
    pub fn from_sse(bytes: &[u8]) -> Self {
        let mut reader = SseReader::new();
        let mut reply = Accumulator::default();
        for event in reader.feed(bytes) {
            reply.event(&event.data);
        }
        let n_skipped = reader.n_skipped();
        if let Some(event) = reader.finish() {
            reply.event(&event.data);
        }
        Self {
            n_skipped,
            ..reply.finish()
        }
    }

    /// Reads an unstreamed reply. What is no JSON, or no completion, gives an empty one.
    pub fn from_json(bytes: &[u8]) -> Self {
        let Ok(body) = serde_json::from_slice::<Value>(bytes) else {
            return Self::default();
        };
        let choice = &body["choices"][0];
        Self {
            id: text(&body["id"]),
            model: text(&body["model"]),
            message: Message::try_from(choice["message"].clone()).ok(),
            finish_reason: text(&choice["finish_reason"]),
            usage: usage(&body["usage"]),
            ended: false,
            error: body.get("error").filter(|error| !error.is_null()).cloned(),
            n_skipped: 0,
        }
    }

    /// Nothing of the model's words is missing: the stream said `[DONE]` or why the model stopped.
    pub fn is_whole(&self) -> bool {
        self.ended || self.finish_reason.is_some()
    }
}

/// `{"error": {"message", "type", "param", "code"}}`.
pub fn error(error: &ErrorBody<'_>) -> Value {
    json!({ "error": {
        "message": error.message,
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    } })
}

/// Reads a `usage` object: OpenAI's fields, and DeepSeek's name for cached tokens.
fn usage(value: &Value) -> Option<Usage> {
    value.as_object()?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let cached = &value["prompt_tokens_details"]["cached_tokens"];
    Some(Usage {
        prompt_tokens: number(&value["prompt_tokens"]),
        completion_tokens: number(&value["completion_tokens"]),
        cached_tokens: number(cached).max(number(&value["prompt_cache_hit_tokens"])),
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests;
