//! Anthropic messages: a reply read whole or put together from its stream, and a request, as the same
//! turn in chat shape.
//!
//! <https://docs.anthropic.com/en/api/messages>, <https://docs.anthropic.com/en/api/messages-streaming>.

mod blocks;
mod request;
mod stream;

use metaclaw_chat::{Message, Usage};
use serde_json::Value;

pub(crate) use self::{
    request::{item, system, tools},
    stream::Accumulator,
};
use crate::{
    chat, json,
    reply::{Reply, ends_reply, error, text},
    tail::ends_with_event,
};

/// Reads an unstreamed reply. What is no JSON, or no message, gives an empty one.
pub(crate) fn read_json(bytes: &[u8]) -> Reply {
    let Ok(mut body) = json::read_bytes(bytes) else {
        return Reply::default();
    };
    let mut tokens = Tokens::default();
    tokens.count(&body["usage"]);
    let message = match body.get_mut("content").map(Value::take) {
        Some(Value::Array(blocks)) => Message::try_from(blocks::assistant(blocks)).ok(),
        Some(_) | None => None,
    };
    Reply {
        id: text(&body["id"]),
        model: text(&body["model"]),
        message,
        finish_reason: body["stop_reason"].as_str().map(finish_reason),
        usage: tokens.usage(),
        ended: false,
        error: error(&body),
        n_skipped: 0,
    }
}

/// The stream's last event, `message_stop`, has come, or the `[DONE]` that some servers send after it.
pub(crate) fn is_done(tail: &[u8]) -> bool {
    let may_be = ends_with_event(tail, &["message_stop"]) || chat::says_done(tail);
    may_be && ends_reply::<Accumulator>(tail)
}

/// A `stop_reason` in OpenAI's words.
fn finish_reason(reason: &str) -> String {
    let reason = match reason {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        // `pause_turn`: the provider's own tools are not done, and the client goes on by itself.
        other => other,
    };
    reason.to_owned()
}

/// What a message cost, as its events count it: each count is that of the whole message so far.
#[derive(Debug, Default)]
struct Tokens {
    is_known: bool,
    input: u64,
    written: u64,
    cached: u64,
    output: u64,
}

// === impl Tokens ===

impl Tokens {
    /// Takes a `usage` object; a count that it leaves out, or sets back, stands as it was.
    fn count(&mut self, usage: &Value) {
        self.is_known |= usage.is_object();
        let take = |known: &mut u64, name: &str| {
            *known = (*known).max(usage[name].as_u64().unwrap_or(0));
        };
        take(&mut self.input, "input_tokens");
        take(&mut self.written, "cache_creation_input_tokens");
        take(&mut self.cached, "cache_read_input_tokens");
        take(&mut self.output, "output_tokens");
    }

    /// Anthropic counts what is written to its cache, and read from it, beside the input.
    fn usage(&self) -> Option<Usage> {
        let prompt = self.input.saturating_add(self.written);
        self.is_known.then_some(Usage {
            prompt_tokens: prompt.saturating_add(self.cached),
            completion_tokens: self.output,
            cached_tokens: self.cached,
        })
    }
}

#[cfg(test)]
mod tests;
