//! Anthropic's messages: reads a reply, streamed or not, and a request, and converts both to the form of chat
//! completions.
//!
//! <https://docs.anthropic.com/en/api/messages>, <https://docs.anthropic.com/en/api/messages-streaming>.

mod blocks;
mod request;
mod stream;
mod usage;

use metaclaw_chat::{Message, finish_reason};
use serde_json::Value;

use self::usage::Tokens;
pub(crate) use self::{
    request::{item, system, tools},
    stream::MessagesAccumulator,
};
use crate::{
    json,
    reply::{Reply, error, text},
};

/// Reads an unstreamed reply. A body that is not JSON, or not a message, gives an empty reply.
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
        error: error(&body),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests;
