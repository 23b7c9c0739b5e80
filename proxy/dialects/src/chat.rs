//! OpenAI chat completions: a reply read whole or put together from its stream.

mod stream;

use metaclaw_chat::{Message, Usage};
use serde_json::Value;

pub(crate) use self::stream::Accumulator;
use crate::{
    json,
    reply::{Reply, ends_reply, error, text},
};

/// Reads an unstreamed reply. What is no JSON, or no completion, gives an empty one.
pub(crate) fn read_json(bytes: &[u8]) -> Reply {
    let Ok(mut body) = json::read_bytes(bytes) else {
        return Reply::default();
    };
    let message = body.pointer_mut("/choices/0/message").map(Value::take);
    let choice = &body["choices"][0];
    Reply {
        id: text(&body["id"]),
        model: text(&body["model"]),
        message: message.and_then(|message| Message::try_from(message).ok()),
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

/// What a part of a content says that is Mistral's thinking:
/// `{"type":"thinking","thinking":[{"type":"text","text":..}]}`.
pub(crate) fn thought(part: &Value) -> Option<String> {
    if part["type"] != "thinking" {
        return None;
    }
    let texts = part["thinking"].as_array().into_iter().flatten();
    Some(texts.filter_map(|text| text["text"].as_str()).collect())
}

/// Reads a `usage` object.
fn usage(value: &Value) -> Option<Usage> {
    value.as_object()?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    Some(Usage {
        prompt_tokens: number(&value["prompt_tokens"]),
        completion_tokens: number(&value["completion_tokens"]),
        cached_tokens: cached_tokens(value),
    })
}

/// How many of a `usage`'s prompt tokens a cache gave, by OpenAI's name, DeepSeek's or Moonshot's.
pub(crate) fn cached_tokens(usage: &Value) -> u64 {
    let names = [
        &usage["prompt_tokens_details"]["cached_tokens"],
        &usage["prompt_cache_hit_tokens"],
        &usage["cached_tokens"],
    ];
    names
        .into_iter()
        .filter_map(Value::as_u64)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
