//! Translates between chat completions and Anthropic's messages, and from Responses to both.
//!
//! It serves a client of one API and an upstream that has only another. A request is translated completely. A reply is
//! translated completely, or event by event as it arrives, without waiting for its end. Chat completions are the common
//! step: from Responses to messages there are two translations.
//!
//! What the other API cannot express becomes text if it is history. If it is new, it is refused by name
//! ([`TranslateError`]), unless leaving it out would not change the reply noticeably. `docs/operating/translation.md`
//! lists what is changed and what is left out, in which direction, and why.

mod accounting;
mod at;
mod call_ids;
mod chat_blocks;
mod chat_messages;
mod chat_reply;
mod chat_stream;
mod content;
mod context;
mod direction;
mod effort;
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

use metaclaw_chat::breaks_off;
use serde_json::Value;

use self::chat_blocks::ChatBlocks;
pub(crate) use self::fit::{first_reply_under_way, pair_results};
pub use self::{
    accounting::{has_accounting, strip_accounting},
    call_ids::upstream_call_id,
    context::ReplyContext,
    direction::Direction,
    effort::DEFAULT_MAX_TOKENS,
    error::TranslateError,
    going_on::go_on,
    own_reasoning::{has_own_reasoning, strip_own_reasoning},
    responses_stream::{is_translated_reply_id, translated_reply_id, upstream_reply_id},
};
use crate::{
    failure::ErrorText,
    json,
    rewrite::{Events, Rewrite},
};

/// An unstreamed reply in the format of the request's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translated {
    pub body: Vec<u8>,
    /// Set if it is an error although it came with status 200: the status that it should have.
    pub error: Option<u16>,
}

pub(crate) fn sent_id(id: &str) -> String {
    names::messages_id(&names::chat_id(id))
}

pub(crate) fn bounded_id(id: &str) -> Cow<'_, str> {
    names::chat_id(id)
}

pub(crate) fn sent_name(name: &str) -> String {
    names::tool(name).into_owned()
}

/// Translates the request into the other API.
///
/// # Errors
/// Returns [`TranslateError`], which names the field that the other API cannot express, or that is invalid in its own
/// API.
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

/// Translates the request in all steps of a path, and returns each step with what its reply needs. `created` is the
/// request's time in seconds since 1970.
///
/// # Errors
/// Fails like [`request`].
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
        // Blocks that Anthropic signed are only for Anthropic.
        let messages = now["messages"].as_array_mut().into_iter().flatten();
        let messages = messages.filter_map(Value::as_object_mut);
        messages.for_each(|message| drop(message.shift_remove("thinking_blocks")));
    }
    Ok((now, steps))
}

/// Translates an unstreamed reply into the request's API.
///
/// # Errors
/// Returns [`TranslateError`] if `body` is neither a reply of the upstream's API nor an error.
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
    let reasons = [&body["choices"][0]["finish_reason"], &body["stop_reason"]];
    let mut reasons = reasons.into_iter().filter_map(Value::as_str);
    if let Some(reason) = reasons.find(|reason| breaks_off(reason)) {
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
        // A body that is not a reply may be an error in its own format.
        Err(why) => match ErrorText::read(&body) {
            text if text.message.is_empty() => Err(why),
            text => Ok(failed(&text)),
        },
    }
}

/// Translates a streamed reply event by event.
///
/// If the upstream sends something that cannot be read or expressed, an error of the caller's API is sent and nothing
/// after it. Only the upstream's end is passed on: a cut stream stays cut.
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

/// Translates the body of an error reply (any status except 2xx) into the request's API.
///
/// A body that is not of the upstream's API, such as a page of a proxy in between, becomes the message.
pub fn error(direction: Direction, status: u16, body: &[u8]) -> Vec<u8> {
    bytes(&error_reply::body(direction, status, body))
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
