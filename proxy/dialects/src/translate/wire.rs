//! Helpers for both directions: reading and copying fields, writing events.

use serde_json::{Map, Value, json};

pub(super) fn given(value: &Value) -> Option<&Value> {
    (!value.is_null()).then_some(value)
}

pub(super) fn copy(body: &Value, from: &str, out: &mut Map<String, Value>, to: &str) {
    if let Some(value) = body.get(from).and_then(given) {
        out.insert(to.to_owned(), value.clone());
    }
}

pub(super) fn put_data(out: &mut Vec<u8>, data: &Value) {
    out.extend_from_slice(format!("data: {data}\n\n").as_bytes());
}

pub(super) fn put_event(out: &mut Vec<u8>, data: &Value) {
    let name = data["type"].as_str().unwrap_or_default();
    out.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}

/// A comment, which replaces the upstream's keep-alive in a silent stream.
pub(super) const KEEP_ALIVE: &[u8] = b": ping\n\n";

pub(super) fn is_comment(raw: &[u8]) -> bool {
    raw.trim_ascii_start().starts_with(b":")
}

/// Converts arguments to Anthropic's `input`, which is always an object.
pub(super) fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(input)) => Value::Object(input),
        Ok(_) | Err(_) => json!({ INVALID_JSON: arguments }),
    }
}

pub(super) fn arguments(input: &Value) -> String {
    match input.as_object().filter(|input| input.len() == 1) {
        Some(input) => match input.get(INVALID_JSON) {
            Some(Value::String(arguments)) => arguments.clone(),
            Some(_) | None => Value::Object(input.clone()).to_string(),
        },
        None if input.is_null() => "{}".to_owned(),
        None => input.to_string(),
    }
}

/// <https://docs.claude.com/en/docs/agents-and-tools/tool-use/fine-grained-tool-streaming>
const INVALID_JSON: &str = "INVALID_JSON";

pub(super) fn filled(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Returns whether a model is one of OpenAI's reasoning models, which accept fewer parameters than others.
pub(super) fn reasons(model: &Value) -> bool {
    let model = model.as_str().unwrap_or_default();
    let name = model.rsplit('/').next().unwrap_or(model);
    let families = ["gpt-5", "o1", "o3", "o4"];
    let is_of = |family: &&str| {
        let rest = name.strip_prefix(*family);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    families.iter().any(is_of) && !name.contains("-chat")
}
