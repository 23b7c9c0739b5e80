//! OpenAI Responses: a reply read whole or put together from its stream, and a request, as the same
//! turn in chat shape.
//!
//! <https://platform.openai.com/docs/api-reference/responses>, and its streaming events.

mod items;
mod request;
mod stream;

use metaclaw_chat::{Message, Usage};
use serde_json::Value;

pub(crate) use self::{
    items::{item, join},
    request::{system, tools},
    stream::Accumulator,
};
use crate::{
    chat, json,
    reply::{Reply, ends_reply, error, text},
    tail::ends_with_event,
};

/// The events that end a stream.
const ENDS: [&str; 3] = [
    "response.completed",
    "response.incomplete",
    "response.failed",
];

/// Reads an unstreamed reply. What is no JSON, or no response, gives an empty one.
pub(crate) fn read_json(bytes: &[u8]) -> Reply {
    let Ok(mut response) = json::read_bytes(bytes) else {
        return Reply::default();
    };
    let output = match response.get_mut("output").map(Value::take) {
        Some(Value::Array(output)) => output,
        Some(_) | None => Vec::new(),
    };
    let status = response["status"].as_str().unwrap_or_default();
    let message = items::turn(&output, is_over(status));
    Reply {
        id: text(&response["id"]),
        model: text(&response["model"]),
        finish_reason: finish_reason(status, &response, message.as_ref()),
        message,
        usage: usage(&response["usage"]),
        ended: false,
        error: error(&response),
        n_skipped: 0,
    }
}

/// One of the events that end a stream has come, or the `[DONE]` that some servers send.
pub(crate) fn is_done(tail: &[u8]) -> bool {
    let may_be = ends_with_event(tail, &ENDS) || chat::says_done(tail);
    may_be && ends_reply::<Accumulator>(tail)
}

/// The model is done, so that even a reply without a word is one.
fn is_over(status: &str) -> bool {
    matches!(status, "completed" | "incomplete")
}

/// Why the model stopped, in the words of a chat completion.
fn finish_reason(status: &str, response: &Value, message: Option<&Message>) -> Option<String> {
    let calls = message.is_some_and(|message| message.get("tool_calls").is_some());
    let reason = match status {
        "completed" if calls => "tool_calls",
        "completed" => "stop",
        "incomplete" => match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => "length",
            Some(other) => other,
            None => "incomplete",
        },
        "cancelled" => "cancelled",
        // It failed, or runs in the background: nothing has stopped it yet.
        _ => return None,
    };
    Some(reason.to_owned())
}

fn usage(value: &Value) -> Option<Usage> {
    value.as_object()?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    Some(Usage {
        prompt_tokens: number(&value["input_tokens"]),
        completion_tokens: number(&value["output_tokens"]),
        cached_tokens: number(&value["input_tokens_details"]["cached_tokens"]),
    })
}

#[cfg(test)]
mod tests;
