//! OpenAI's Responses: reads a reply, streamed or not, and a request, and converts both to the form of chat
//! completions.
//!
//! <https://platform.openai.com/docs/api-reference/responses>, and its streaming events.

mod id;
mod items;
mod parts;
mod request;
mod status;
mod stream;

use metaclaw_chat::Usage;
use serde_json::Value;

pub use self::id::reply_id;
use self::status::{finish_reason, is_over};
pub(crate) use self::{
    items::{item, join},
    request::{system, tools},
    stream::ResponsesAccumulator,
};
use crate::{
    json,
    reply::{Reply, error, text},
};

/// Reads an unstreamed reply. A body that is not JSON, or not a response, gives an empty reply.
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
        usage: Usage::read(&response["usage"]),
        error: error(&response),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests;
