//! Errors, both ways.
//!
//! One kind has to be known by what it says: a prompt over the model's context, on which agents compact
//! their conversation. OpenAI's clients go by the code `context_length_exceeded`, Anthropic's by the
//! words "prompt is too long". What other servers say in that case is known to [`crate::failure`].

use std::fmt;

use serde_json::{Value, json};

use super::direction::Direction;
use crate::{
    error::{ErrorBody, anthropic, anthropic_type, openai},
    failure::{ErrorText, Failure},
    json,
    sse::SseEvent,
};

const TOO_LONG: &str = "prompt is too long";
const TOO_LONG_CODE: &str = "context_length_exceeded";

/// The most of a message that is repeated, in characters: a body of no known shape is one.
const SHOWN: usize = 2000;

/// The body of an error reply, in the words of the request's API.
pub(super) fn body(direction: Direction, status: u16, body: &[u8]) -> Value {
    let mut text = ErrorText::parse(body);
    if text.message.is_empty() {
        text.message = format!("the upstream answered with status {status} and nothing more");
    }
    said(direction, &text, Some(status))
}

/// An error in the words of the request's API; without a `status`, it came inside a reply.
pub(super) fn said(direction: Direction, text: &ErrorText, status: Option<u16>) -> Value {
    match direction {
        Direction::ChatToMessages | Direction::ResponsesToChat => to_chat(text, status),
        Direction::MessagesToChat => to_messages(text, status),
    }
}

/// An error as OpenAI's. The type is the upstream's, or follows from the status.
pub(super) fn to_chat(text: &ErrorText, status: Option<u16>) -> Value {
    let is_too_long = text.failure(status) == Some(Failure::ContextLength);
    // A number is a status, or means something to its server alone.
    let code = Some(text.code.as_str());
    let code = code.filter(|code| code.starts_with(|c: char| c.is_ascii_alphabetic()));
    let of_status = anthropic_type(status.unwrap_or_else(|| text.own_status()));
    openai(&ErrorBody {
        status: 0,
        message: &shown(&text.message),
        kind: Some(text.kind.as_str())
            .filter(|kind| !kind.is_empty())
            .unwrap_or(of_status),
        param: None,
        code: is_too_long.then_some(TOO_LONG_CODE).or(code),
    })
}

/// An error as Anthropic's. The type follows from the status; inside a reply from the error's own, or from
/// its class.
pub(super) fn to_messages(text: &ErrorText, status: Option<u16>) -> Value {
    let is_too_long = text.failure(status) == Some(Failure::ContextLength);
    let given = shown(&text.message);
    let message = if is_too_long && !given.to_lowercase().starts_with(TOO_LONG) {
        format!("{TOO_LONG}: {given}")
    } else {
        given
    };
    anthropic(&ErrorBody {
        status: status.unwrap_or_else(|| text.own_status()),
        message: &message,
        kind: "",
        param: None,
        code: None,
    })
}

/// An error as a failed response has it. Codex goes by the code.
pub(super) fn to_response(text: &ErrorText) -> Value {
    let code = match text.failure(None) {
        Some(Failure::ContextLength) => TOO_LONG_CODE,
        Some(Failure::RateLimit) => "rate_limit_exceeded",
        Some(Failure::Billing) => "insufficient_quota",
        Some(Failure::Overloaded) => "server_is_overloaded",
        _ => "server_error",
    };
    json!({ "code": code, "message": shown(&text.message) })
}

/// The data of an event, or the error that it brings; `None` where a torn last event is neither.
pub(super) fn data(event: &SseEvent, is_ended: bool) -> Option<Result<Value, ErrorText>> {
    let is_error = event.event.as_deref() == Some("error");
    Some(match json::read::<Value>(&event.data) {
        Ok(data) => match ErrorText::in_reply(&data) {
            Some(text) => Err(text),
            None if is_error => Err(ErrorText::read(&data)),
            None => Ok(data),
        },
        Err(_) if !is_ended => return None,
        Err(_) if is_error => Err(ErrorText::of_message(event.data.clone())),
        Err(source) => Err(unreadable(&source)),
    })
}

/// An event that upstream sent and nobody can read, or say in the caller's words.
pub(super) fn unreadable(why: &dyn fmt::Display) -> ErrorText {
    ErrorText::of_message(format!(
        "an event of the upstream's reply cannot be translated: {why}"
    ))
}

/// A reply that upstream broke off, as its `finish_reason` says. Anthropic has no such reason to stop, and
/// it must not look like another.
pub(super) fn broken_off(finish_reason: &str) -> ErrorText {
    ErrorText::of_message(format!(
        "the upstream broke its reply off: finish_reason is {finish_reason:?}"
    ))
}

/// A reply that ended before anything was said, and without a reason to stop.
pub(super) fn empty() -> ErrorText {
    ErrorText::of_message(
        "the upstream's reply ended before it said anything, and without a reason".to_owned(),
    )
}

fn shown(message: &str) -> String {
    message.chars().take(SHOWN).collect()
}
