//! Chat completions and Anthropic messages, each said in the other's words.
//!
//! For a client that speaks one of the two to an upstream that speaks only the other. A request is
//! translated whole; a reply whole or event by event as it comes, never held to its end.
//!
//! What the other API has no word for is refused by name ([`TranslateError`]), unless leaving it out
//! changes nothing that the caller could notice in the reply. Left out in silence are: all fields that
//! are not named in this crate; towards messages `seed`, `store`, `metadata`, `service_tier`,
//! `prediction`, `prompt_cache_*`, `reasoning_effort`, `verbosity`, `top_logprobs`, `name` of a message,
//! a `user` that is an e-mail address, texts of blanks alone, and reasoning that no signature vouches for
//! (Anthropic refuses all three); towards chat `cache_control`, `citations`, `container`,
//! `service_tier`, `thinking` (the request's), `output_config.effort`, `is_error`, `redacted_thinking`,
//! the signature of a thinking block, and a `metadata.user_id` over 64 characters (OpenAI's limit).
//!
//! What is changed on the way, for want of the same thing on the other side:
//! - system and developer messages, wherever they stand, become the `system` field;
//! - `max_tokens`, which Anthropic requires, is [`DEFAULT_MAX_TOKENS`] where the caller names none;
//! - `temperature` above 1 becomes 1, Anthropic's highest;
//! - images in a tool's result follow it in a user message, as chat has none in tool messages;
//! - arguments that are no JSON object become `{"INVALID_JSON": ".."}`, as Anthropic's docs advise, and
//!   such an object becomes the arguments again;
//! - a tool's schema that names no type is an object's, which Anthropic wants said;
//! - a call that its upstream gave no id gets one with a part of the reply's in it;
//! - characters of tool-call ids that Anthropic refuses become `_`.

mod at;
mod chat_reply;
mod chat_stream;
mod content;
mod context;
mod direction;
mod error;
mod error_reply;
mod messages_calls;
mod messages_reply;
mod messages_stream;
mod params;
mod to_chat;
mod to_messages;
mod tools;
mod usage;
mod wire;

use serde_json::Value;

pub use self::{
    context::ReplyContext, direction::Direction, error::TranslateError, params::DEFAULT_MAX_TOKENS,
};
use crate::{
    json,
    rewrite::{Events, Rewrite},
};

/// The request in the other API's words.
///
/// # Errors
/// [`TranslateError`] names the field that the other API cannot say, or that is not as its own API has it.
pub fn request(direction: Direction, body: &Value) -> Result<Value, TranslateError> {
    match direction {
        Direction::ChatToMessages => to_messages::request(body),
        Direction::MessagesToChat => to_chat::request(body),
    }
}

/// A whole reply in the words of the request's API. An error that came with status 200 stays an error.
///
/// # Errors
/// [`TranslateError`] where `body` is no reply of the upstream's API.
pub fn reply(
    direction: Direction,
    context: &ReplyContext,
    body: &[u8],
) -> Result<Vec<u8>, TranslateError> {
    let body = json::read_bytes(body)?;
    let translated = match direction {
        Direction::ChatToMessages => chat_reply::reply(context, &body)?,
        Direction::MessagesToChat => messages_reply::reply(context, &body)?,
    };
    Ok(translated.to_string().into_bytes())
}

/// Translates a streamed reply event by event.
///
/// Where upstream sends what cannot be read or said, an error of the caller's API goes out and nothing
/// after it. The end is only ever what upstream gave: a cut stream stays one.
pub fn stream(direction: Direction, context: &ReplyContext) -> Box<dyn Rewrite> {
    match direction {
        Direction::ChatToMessages => Box::new(Events::new(chat_stream::ChatStream::new(context))),
        Direction::MessagesToChat => {
            Box::new(Events::new(messages_stream::MessagesStream::new(context)))
        }
    }
}

/// The body of an error reply (any status but 2xx), in the words of the request's API.
///
/// What is none of the upstream's API, as a page of some proxy on the way, becomes the message.
pub fn error(direction: Direction, status: u16, body: &[u8]) -> Vec<u8> {
    error_reply::body(direction, status, body)
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests;
