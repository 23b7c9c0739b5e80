//! Reads servers' errors into one type.

use serde_json::Value;

use crate::json;

#[derive(Debug, Default)]
pub(crate) struct ErrorText {
    pub(crate) code: String,
    /// `type`, or Google's `status`.
    pub(crate) kind: String,
    /// The message for people, unchanged. It is empty if there is none.
    pub(crate) message: String,
    /// `message`, in lower case.
    pub(super) words: String,
    pub(super) status: Option<u16>,
}

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
    /// Reads the body of an error reply. A body of an unknown format is the message itself.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let read = json::read_bytes(body)
            .map(|body| Self::in_reply(&body).unwrap_or_else(|| Self::read(&body)));
        match read {
            Ok(text) if !text.message.is_empty() || !text.code.is_empty() => text,
            Ok(_) | Err(_) => Self::of_message(String::from_utf8_lossy(body).trim().to_owned()),
        }
    }

    pub(crate) fn of_message(message: String) -> Self {
        Self {
            words: message.to_lowercase(),
            message,
            ..Self::default()
        }
    }

    pub(crate) fn in_reply(body: &Value) -> Option<Self> {
        error_in(body).map(Self::read)
    }

    /// Reads an error in any of these formats:
    ///
    /// | format | who writes it |
    /// |---|---|
    /// | `{"error": {"message", "type", "code"}}` | OpenAI, and most others |
    /// | `{"type": "error", "error": {"type", "message"}}` | Anthropic, MiniMax |
    /// | `[{"error": {"code", "message", "status"}}]` | Gemini |
    /// | `{"code", "error": "..."}` | xAI |
    /// | `{"error": "..."}` | Ollama, LM Studio |
    /// | `{"object": "error", "message", "type", "code"}` | vLLM, SGLang, Mistral |
    /// | `{"code", "message", "type"}` | llama.cpp, after `error:` in a stream |
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
        // This is OpenRouter's quotation of its provider.
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
            // Anthropic uses this type for any error.
            kind: Some(kind)
                .filter(|kind| kind != "error")
                .unwrap_or_default(),
            message,
        }
    }
}

/// Returns the error in a reply or event: the whole body, or OpenRouter's choice.
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

/// Some servers send a list with one element.
fn first(body: &Value) -> &Value {
    body.get(0).unwrap_or(body)
}

/// Servers without an error write `null`, or nothing.
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

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        // FastAPI sends a list of errors.
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

/// Some servers have their own numbers there.
fn http_status(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let number = number.and_then(|number| u16::try_from(number).ok());
    number.filter(|status| (400..600).contains(status))
}
