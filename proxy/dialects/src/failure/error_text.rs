//! An error as servers write it, read into one shape.

use serde_json::Value;

use crate::json;

/// What an error says, whichever server wrote it.
#[derive(Debug, Default)]
pub(crate) struct ErrorText {
    /// `code`: what a program wrote for programs.
    pub(crate) code: String,
    /// `type`, or Google's `status`.
    pub(crate) kind: String,
    /// What it says to people, as it came. Empty where it says nothing.
    pub(crate) message: String,
    /// `message`, in lower case.
    pub(super) words: String,
    /// The status that the error itself names.
    pub(super) status: Option<u16>,
}

/// Where the message of an error stands in it.
const MESSAGES: [&str; 7] = [
    "message",
    "msg",
    "detail",
    "status_msg",
    "error",
    "error_description",
    "reason",
];

// === impl ErrorText ===

impl ErrorText {
    /// Reads the body of an error reply. A body of no known shape is the message itself.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let read = json::read_bytes(body);
        let read = read.map(|body| Self::in_reply(&body).unwrap_or_else(|| Self::read(&body)));
        match read {
            Ok(text) if !text.message.is_empty() || !text.code.is_empty() => text,
            Ok(_) | Err(_) => Self::of_message(String::from_utf8_lossy(body).trim().to_owned()),
        }
    }

    /// An error of ours, about a reply.
    pub(crate) fn of_message(message: String) -> Self {
        Self {
            words: message.to_lowercase(),
            message,
            ..Self::default()
        }
    }

    /// The error in a reply, or in an event of one, that came with status 200.
    pub(crate) fn in_reply(body: &Value) -> Option<Self> {
        error_in(body).map(Self::read)
    }

    /// Reads an error of any of these shapes:
    ///
    /// | shape | who writes it |
    /// |---|---|
    /// | `{"error": {"message", "type", "code"}}` | OpenAI, and most others |
    /// | `{"type": "error", "error": {"type", "message"}}` | Anthropic, MiniMax |
    /// | `[{"error": {"code", "message", "status"}}]` | Gemini |
    /// | `{"code", "error": "..."}` | xAI |
    /// | `{"error": "..."}` | Ollama, LM Studio |
    /// | `{"object": "error", "message", "type", "code"}` | vLLM, SGLang, Mistral |
    /// | `{"code", "message", "type"}` | llama.cpp, behind `error:` in a stream |
    /// | `{"base_resp": {"status_code", "status_msg"}}` | MiniMax |
    /// | `{"errors": [{"code", "message"}]}` | Cloudflare |
    /// | `{"code", "msg"}`, `{"detail"}`, `{"message", "__type"}` | Z.ai; FastAPI; AWS |
    pub(crate) fn read(body: &Value) -> Self {
        let body = first(body);
        let inner = [&body["error"], first(&body["errors"]), &body["base_resp"]];
        let inner = inner.into_iter().find(|value| is_said(value));
        let error = inner.unwrap_or(body);
        let either = |names: &[&str]| {
            let of = |value: &Value| names.iter().find_map(|name| word(&value[*name]));
            of(error).or_else(|| of(body)).unwrap_or_default()
        };
        let code = either(&["code", "status_code"]);
        let kind = either(&["type", "status", "__type"]);
        let said = message(error).or_else(|| message(body));
        // OpenRouter: what its provider said.
        let behind = text(&error["metadata"]["raw"]);
        let said: Vec<String> = said.into_iter().chain(behind).collect();
        let message = said.join(": ");
        let statuses = ["code", "status", "status_code"];
        let mut statuses = statuses
            .iter()
            .flat_map(|name| [&error[*name], &body[*name]]);
        Self {
            words: message.to_lowercase(),
            status: statuses.find_map(http_status),
            code,
            // Anthropic's own word for any error.
            kind: Some(kind)
                .filter(|kind| kind != "error")
                .unwrap_or_default(),
            message,
        }
    }
}

/// Where the error of a reply stands, or of an event: the whole body, or OpenRouter's choice.
fn error_in(body: &Value) -> Option<&Value> {
    let body = first(body);
    let choice = &body["choices"][0];
    let failed = body["base_resp"]["status_code"].as_i64();
    let is_error = is_said(&body["error"])
        || body["object"] == "error"
        || body["type"] == "error"
        || failed.is_some_and(|code| code != 0);
    if is_error {
        return Some(body);
    }
    is_said(&choice["error"]).then_some(choice)
}

/// Some servers answer a list of one.
fn first(body: &Value) -> &Value {
    body.get(0).unwrap_or(body)
}

/// Servers that know no error say `null`, or nothing else.
fn is_said(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn message(error: &Value) -> Option<String> {
    if error.is_string() {
        return text(error);
    }
    MESSAGES.iter().find_map(|name| text(&error[*name]))
}

/// A text; of anything else what can be read of it.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        // FastAPI: a list of faults.
        Value::Array(list) => list.first().and_then(message),
        Value::Object(_) => message(value).or_else(|| Some(value.to_string())),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
    .filter(|text| !text.is_empty())
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Some servers have numbers of their own there.
fn http_status(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let number = number.and_then(|number| u16::try_from(number).ok());
    number.filter(|status| (400..600).contains(status))
}
