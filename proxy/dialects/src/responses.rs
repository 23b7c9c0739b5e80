//! OpenAI Responses: a reply read whole or put together from its stream, and a request, as the same
//! turn in chat shape.
//!
//! <https://platform.openai.com/docs/api-reference/responses>, and its streaming events.

mod items;
mod parts;
mod request;
mod status;
mod stream;

use serde_json::Value;

use self::status::{finish_reason, is_over, usage};
pub(crate) use self::{
    items::{item, join},
    request::{system, tools},
    stream::Accumulator,
};
use crate::{
    chat,
    fields::Fields,
    json,
    reply::{Reply, ends_reply, error, text},
    sse::SseReader,
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

/// The id of a response: of its body, or of its first event, where it `is_stream`.
///
/// A request may go on from a reply by this id before the log has read the reply: no more than that is read.
pub fn response_id(reply: &[u8], is_stream: bool) -> Option<String> {
    /// Longer than a first event is without its instructions and tools.
    const PIECE: usize = 4 << 10;
    if !is_stream {
        let body = Fields::parse(str::from_utf8(reply).ok()?)?;
        return Some(body.text("id")?.into_owned());
    }
    let mut reader = SseReader::new();
    let mut pieces = reply.chunks(PIECE);
    let event = pieces.find_map(|piece| reader.feed(piece).into_iter().next())?;
    let response = Fields::parse(&event.data)?;
    Some(response.object("response")?.text("id")?.into_owned())
}

/// One of the events that end a stream has come, or the `[DONE]` that some servers send.
pub(crate) fn is_done(tail: &[u8]) -> bool {
    let may_be = ends_with_event(tail, &ENDS) || chat::says_done(tail);
    may_be && ends_reply::<Accumulator>(tail)
}

#[cfg(test)]
mod tests;
