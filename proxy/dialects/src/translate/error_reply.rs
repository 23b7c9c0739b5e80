//! Translates errors in both directions.
//!
//! One kind of error has to be recognised: a prompt over the model's context, after which agents compact their
//! conversation. OpenAI's clients look for the code `context_length_exceeded`, and Anthropic's for the words "prompt is
//! too long". [`crate::failure`] knows other servers' words for this.

use std::fmt;

use serde_json::{Value, json};

use super::direction::Direction;
use crate::{
    error::{OwnError, anthropic, anthropic_type, openai},
    failure::{ErrorText, Failure},
    json,
    sse::SseEvent,
};

const TOO_LONG: &str = "prompt is too long";
const TOO_LONG_CODE: &str = "context_length_exceeded";

/// The largest part of a message that is repeated, in characters, because a body of an unknown format is a message too.
const SHOWN: usize = 2000;

pub(super) fn body(direction: Direction, status: u16, body: &[u8]) -> Value {
    let mut text = ErrorText::parse(body);
    if text.message.is_empty() {
        text.message = format!("the upstream answered with status {status} and nothing more");
    }
    said(direction, &text, Some(status))
}

/// Formats an error for the request's API. Without a `status`, it came inside a reply.
pub(super) fn said(direction: Direction, text: &ErrorText, status: Option<u16>) -> Value {
    match direction {
        Direction::ChatToMessages | Direction::ResponsesToChat => to_chat(text, status),
        Direction::MessagesToChat => to_messages(text, status),
    }
}

pub(super) fn to_chat(text: &ErrorText, status: Option<u16>) -> Value {
    let is_too_long = text.failure(status) == Some(Failure::ContextLength);
    // A number is a status, or has a meaning only for its server.
    let code =
        Some(text.code.as_str()).filter(|code| code.starts_with(|c: char| c.is_ascii_alphabetic()));
    let of_status = anthropic_type(status.unwrap_or_else(|| text.own_status()));
    openai(&OwnError {
        status: 0,
        message: &shown(&text.message),
        kind: Some(text.kind.as_str())
            .filter(|kind| !kind.is_empty())
            .unwrap_or(of_status),
        param: None,
        code: is_too_long.then_some(TOO_LONG_CODE).or(code),
    })
}

/// Formats an error for Anthropic's API. The type is derived from the status. Inside a reply, it is derived from the
/// error's own type, or from its class.
pub(super) fn to_messages(text: &ErrorText, status: Option<u16>) -> Value {
    let is_too_long = text.failure(status) == Some(Failure::ContextLength);
    let given = shown(&text.message);
    let message = if is_too_long && !given.to_lowercase().starts_with(TOO_LONG) {
        format!("{TOO_LONG}: {given}")
    } else {
        given
    };
    anthropic(&OwnError {
        status: status.unwrap_or_else(|| text.own_status()),
        message: &message,
        kind: "",
        param: None,
        code: None,
    })
}

/// Formats an error for a failed response. Codex uses the code.
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

/// Returns the data of an event, or its error, or `None` if an incomplete last event is neither.
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

pub(super) fn unreadable(why: &dyn fmt::Display) -> ErrorText {
    ErrorText::of_message(format!(
        "an event of the upstream's reply cannot be translated: {why}"
    ))
}

/// Makes the error for a reply that the upstream broke off, according to its stop reason. Anthropic has no such
/// stop reason, and the reply must not look like a normal one.
pub(super) fn broken_off(reason: &str) -> ErrorText {
    ErrorText::of_message(format!(
        "the upstream broke its reply off: finish_reason is {reason:?}"
    ))
}

pub(super) fn empty() -> ErrorText {
    ErrorText::of_message(
        "the upstream's reply ended before it said anything, and without a reason".to_owned(),
    )
}

fn shown(message: &str) -> String {
    message.chars().take(SHOWN).collect()
}
