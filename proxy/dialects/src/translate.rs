//! Chat completions and Anthropic messages, each said in the other's words, and Responses in those of both.
//!
//! For a client that speaks one of them to an upstream that speaks only another. A request is
//! translated whole; a reply whole or event by event as it comes, never held to its end. Chat completions are the
//! hub: between Responses and messages there are two steps.
//!
//! What the other API has no word for becomes text where it is history, and is refused by name
//! ([`TranslateError`]) where it is new, unless leaving it out changes nothing that the caller could notice in
//! the reply. `docs/operating/translation.md` lists what is changed on the way and what is left out, in which direction,
//! and why.

mod accounting;
mod at;
mod chat_blocks;
mod chat_reply;
mod chat_stream;
mod content;
mod context;
mod direction;
mod error;
mod error_reply;
mod fit;
mod going_on;
mod messages_reply;
mod messages_stream;
mod names;
mod ordered_calls;
mod own_reasoning;
mod params;
mod responses_reply;
mod responses_request;
mod responses_stream;
mod responses_tools;
mod stops;
mod to_chat;
mod to_messages;
mod tools;
mod usage;
mod wire;

use std::borrow::Cow;

use serde_json::Value;

use self::chat_blocks::ChatBlocks;
pub(crate) use self::fit::{first_reply_under_way, pair_results};
pub use self::{
    accounting::{has_accounting, strip_accounting},
    context::ReplyContext,
    direction::Direction,
    error::TranslateError,
    going_on::go_on,
    own_reasoning::{has_own_reasoning, strip_own_reasoning},
    params::DEFAULT_MAX_TOKENS,
    responses_stream::{is_translated_reply_id, translated_reply_id, upstream_reply_id},
};
use crate::{
    failure::ErrorText,
    json,
    reply::breaks_off,
    rewrite::{Events, Rewrite},
};

/// A whole reply in the words of the request's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translated {
    pub body: Vec<u8>,
    /// It is an error, though it came with status 200: the status that it should have.
    pub error: Option<u16>,
}

/// The id of a call as it may stand in any request: each API's limits applied.
pub(crate) fn sent_id(id: &str) -> String {
    names::messages_id(&names::chat_id(id))
}

/// The id of a call as OpenAI takes it.
pub(crate) fn bounded_id(id: &str) -> Cow<'_, str> {
    names::chat_id(id)
}

/// The name of a tool as it may stand in any request.
pub(crate) fn sent_name(name: &str) -> String {
    names::tool(name).into_owned()
}

/// The request in the other API's words.
///
/// # Errors
/// [`TranslateError`] names the field that the other API cannot say, or that is not as its own API has it.
///
/// # Examples
/// ```
/// use metaclaw_dialects::translate::{self, Direction};
/// use serde_json::json;
///
/// let messages = json!({
///     "model": "claude", "max_tokens": 64, "system": "Be brief.",
///     "messages": [{"role": "user", "content": "Hello"}],
/// });
/// let chat = translate::request(Direction::MessagesToChat, &messages)?;
/// assert_eq!(chat["messages"][0]["role"], "system");
/// assert_eq!(chat["messages"][1]["content"], "Hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn request(direction: Direction, body: &Value) -> Result<Value, TranslateError> {
    match direction {
        Direction::ChatToMessages => to_messages::request(body),
        Direction::MessagesToChat => to_chat::request(body),
        Direction::ResponsesToChat => responses_request::request(body),
    }
}

/// The request after all steps of a path, and each step with what its reply needs; `created` is when it was made,
/// in seconds since 1970.
///
/// # Errors
/// As [`request`].
pub fn request_along(
    path: &[Direction],
    body: &Value,
    created: u64,
) -> Result<(Value, Vec<(Direction, ReplyContext)>), TranslateError> {
    let mut now = body.clone();
    let mut steps = Vec::new();
    for direction in path {
        let next = request(*direction, &now)?;
        let context = ReplyContext::for_request(*direction, &now, created);
        steps.push((*direction, context));
        now = next;
    }
    if path.last() == Some(&Direction::ResponsesToChat) {
        // What Anthropic signed is for Anthropic alone.
        let messages = now["messages"].as_array_mut().into_iter().flatten();
        let messages = messages.filter_map(Value::as_object_mut);
        messages.for_each(|message| drop(message.shift_remove("thinking_blocks")));
    }
    Ok((now, steps))
}

/// A whole reply in the words of the request's API.
///
/// # Errors
/// [`TranslateError`] where `body` is no reply of the upstream's API, and no error either.
pub fn reply(
    direction: Direction,
    context: &ReplyContext,
    body: &[u8],
) -> Result<Translated, TranslateError> {
    let body = json::read_bytes(body)?;
    let failed = |text: &ErrorText| Translated {
        body: bytes(&error_reply::said(direction, text, None)),
        error: Some(text.own_status()),
    };
    if let Some(text) = ErrorText::in_reply(&body) {
        return Ok(failed(&text));
    }
    let finish_reason = body["choices"][0]["finish_reason"].as_str();
    if let Some(reason) = finish_reason.filter(|reason| breaks_off(reason)) {
        return Ok(failed(&error_reply::broken_off(reason)));
    }
    let translated = match direction {
        Direction::ChatToMessages => chat_reply::reply(context, &body),
        Direction::MessagesToChat => messages_reply::reply(context, &body),
        Direction::ResponsesToChat => responses_reply::reply(context, &body),
    };
    match translated {
        Ok(translated) => Ok(Translated {
            body: bytes(&translated),
            error: None,
        }),
        // What is no reply may be an error in words of its own.
        Err(why) => match ErrorText::read(&body) {
            text if text.message.is_empty() => Err(why),
            text => Ok(failed(&text)),
        },
    }
}

/// Translates a streamed reply event by event.
///
/// Where upstream sends what cannot be read or said, an error of the caller's API goes out and nothing
/// after it. The end is only ever what upstream gave: a cut stream stays one.
pub fn stream(direction: Direction, context: &ReplyContext) -> Box<dyn Rewrite> {
    match direction {
        Direction::ChatToMessages => Box::new(Events::new(chat_stream::ChatStream::new(context))),
        Direction::MessagesToChat => {
            let writer = messages_stream::MessagesWriter::new(context);
            Box::new(Events::new(ChatBlocks::new(context, writer)))
        }
        Direction::ResponsesToChat => {
            let writer = responses_stream::ResponsesWriter::new(context);
            Box::new(Events::new(ChatBlocks::new(context, writer)))
        }
    }
}

/// The body of an error reply (any status but 2xx), in the words of the request's API.
///
/// What is none of the upstream's API, as a page of some proxy on the way, becomes the message.
pub fn error(direction: Direction, status: u16, body: &[u8]) -> Vec<u8> {
    bytes(&error_reply::body(direction, status, body))
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
