//! Errors, both ways.
//!
//! One kind has to be known by what it says: a prompt over the model's context, on which agents compact
//! their conversation. OpenAI's clients go by the code `context_length_exceeded`, Anthropic's by the
//! words "prompt is too long"; other servers have words of their own.

use std::fmt;

use serde_json::{Value, json};

use super::{direction::Direction, wire::filled};
use crate::{
    error::{ErrorBody, anthropic, openai},
    json,
};

const TOO_LONG: &str = "prompt is too long";
const TOO_LONG_CODE: &str = "context_length_exceeded";

/// What servers say in the same case: Anthropic, where the prompt fits but its reply would not; OpenAI and
/// vLLM; llama.cpp.
const TOO_LONG_TOO: [&str; 4] = [
    TOO_LONG,
    "exceed context limit",
    "maximum context length",
    "exceeds the available context size",
];

/// The most of a body of no known shape that becomes the message, in characters.
const SHOWN: usize = 2000;

pub(super) fn body(direction: Direction, status: u16, body: &[u8]) -> Value {
    let read = json::read_bytes(body).unwrap_or(Value::Null);
    let read = if message(&read).is_some() {
        read
    } else {
        json!({ "error": { "message": as_message(status, body) } })
    };
    match direction {
        Direction::ChatToMessages => with_status(to_chat(&read), status),
        Direction::MessagesToChat => to_messages(Some(status), &read),
    }
}

fn as_message(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() {
        format!("the upstream answered with status {status} and nothing more")
    } else {
        text.chars().take(SHOWN).collect()
    }
}

/// Anthropic's error body, or the data of its `event: error`, as OpenAI's.
pub(super) fn to_chat(error: &Value) -> Value {
    let text = message(error).unwrap_or_default();
    let code = is_too_long(text).then_some(TOO_LONG_CODE);
    let kind = filled(&error["error"]["type"]).unwrap_or("api_error");
    openai(&ErrorBody {
        status: 0,
        message: text,
        kind,
        param: None,
        code,
    })
}

/// What no error body says of itself follows from the status.
fn with_status(mut error: Value, status: u16) -> Value {
    let kind = &error["error"]["type"];
    if kind == "api_error" && status < 500 {
        let named = to_messages(Some(status), &error);
        error["error"]["type"] = named["error"]["type"].clone();
    }
    error
}

/// OpenAI's error body, or the data of an error event, as Anthropic's.
///
/// The type follows from the status; inside a stream from the code, where that is a status.
pub(super) fn to_messages(status: Option<u16>, error: &Value) -> Value {
    let given = message(error).unwrap_or_default();
    let error = &error["error"];
    let code = error["code"].as_u64().and_then(|code| code.try_into().ok());
    // Some servers have numbers of their own there.
    let code = code.filter(|code| (400..600).contains(code));
    let is_too_long = error["code"] == TOO_LONG_CODE || is_too_long(given);
    let message = if is_too_long && !given.to_lowercase().contains(TOO_LONG) {
        format!("{TOO_LONG}: {given}")
    } else {
        given.to_owned()
    };
    anthropic(&ErrorBody {
        status: status.or(code).unwrap_or(500),
        message: &message,
        kind: "",
        param: None,
        code: None,
    })
}

/// An event that upstream sent and nobody can read, or say in chat's words.
pub(super) fn unreadable_to_chat(why: &dyn fmt::Display) -> Value {
    to_chat(&unreadable(why))
}

/// An event that upstream sent and nobody can read, or say in Anthropic's words.
pub(super) fn unreadable_to_messages(why: &dyn fmt::Display) -> Value {
    to_messages(None, &unreadable(why))
}

/// A reply that upstream broke off, as its `finish_reason` says. Anthropic has no such reason to stop, and
/// it must not look like another.
pub(super) fn broken_off(finish_reason: &str) -> Value {
    let message = format!("the upstream broke its reply off: finish_reason is {finish_reason:?}");
    to_messages(None, &json!({ "error": { "message": message } }))
}

fn unreadable(why: &dyn fmt::Display) -> Value {
    let message = format!("an event of the upstream's reply cannot be translated: {why}");
    json!({ "error": { "type": "api_error", "message": message } })
}

fn is_too_long(message: &str) -> bool {
    let message = message.to_lowercase();
    TOO_LONG_TOO.iter().any(|words| message.contains(words))
}

/// The message of an error body: `error.message`, or what servers that are not careful write.
fn message(body: &Value) -> Option<&str> {
    let places = [
        &body["error"]["message"],
        &body["error"],
        &body["message"],
        &body["detail"],
    ];
    places.into_iter().find_map(filled)
}
