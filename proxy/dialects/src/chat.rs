//! OpenAI chat completions: a reply read whole or put together from its stream.

mod stream;

use metaclaw_chat::{Message, Usage};
use serde_json::Value;

pub(crate) use self::stream::Accumulator;
use crate::reply::{Reply, ends_reply, error, text};

/// Reads an unstreamed reply. What is no JSON, or no completion, gives an empty one.
pub(crate) fn read_json(bytes: &[u8]) -> Reply {
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else {
        return Reply::default();
    };
    let choice = &body["choices"][0];
    Reply {
        id: text(&body["id"]),
        model: text(&body["model"]),
        message: Message::try_from(choice["message"].clone()).ok(),
        finish_reason: text(&choice["finish_reason"]),
        usage: usage(&body["usage"]),
        ended: false,
        error: error(&body),
        n_skipped: 0,
    }
}

/// The stream's `[DONE]` has come.
pub(crate) fn is_done(tail: &[u8]) -> bool {
    says_done(tail) && ends_reply::<Accumulator>(tail)
}

/// The last line of `tail` is `data: [DONE]`: a cheap look before the event is read.
pub(crate) fn says_done(tail: &[u8]) -> bool {
    let text = tail.trim_ascii_end();
    if !text.ends_with(b"[DONE]") {
        // A long line that comes in pieces is not looked through again with each.
        return false;
    }
    let line = text.rsplit(|b| matches!(b, b'\n' | b'\r')).next();
    let data = line.and_then(|line| line.strip_prefix(b"data:"));
    data.is_some_and(|data| data.trim_ascii_start() == b"[DONE]")
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

#[cfg(test)]
mod tests;
