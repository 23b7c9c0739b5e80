//! Messages as clients send them, made into what templates expect.

use serde_json::{Map, Value, json};

use super::RenderError;

/// Content as one string, arguments of tool calls as objects, `developer` as `system`.
///
/// Templates are written against Python dictionaries of that form; the OpenAI API allows more. A template that
/// `takes_text` for arguments gets them as they were written: so a call that the model made reads as it did then.
pub(super) fn normalise(messages: &[Value], takes_text: bool) -> Result<Vec<Value>, RenderError> {
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| one(index, message, takes_text))
        .collect()
}

/// Adds `text` to the system text; with none, to the template's default, which a message of ours would replace.
pub(super) fn append_system(messages: &mut Vec<Value>, default: Option<&str>, text: &str) {
    let joined = |old: &str| {
        if old.is_empty() {
            text.to_owned()
        } else {
            format!("{old}\n\n{text}")
        }
    };
    match messages.first_mut() {
        Some(first) if first["role"] == "system" => {
            first["content"] = json!(joined(first["content"].as_str().unwrap_or("")));
        }
        _ => {
            let content = joined(default.unwrap_or(""));
            messages.insert(0, json!({"role": "system", "content": content}));
        }
    }
}

fn one(index: usize, message: &Value, takes_text: bool) -> Result<Value, RenderError> {
    let wrong = |field: &str, value: &Value, allowed| RenderError::Message {
        index,
        field: field.to_owned(),
        value: kind_of(value),
        allowed,
    };
    let Some(fields) = message.as_object() else {
        return Err(wrong("role", message, "a message with role and content"));
    };
    let mut fields = fields.clone();
    match fields.get("role").and_then(Value::as_str) {
        Some("developer") => {
            fields.insert("role".into(), json!("system"));
        }
        Some(_) => {}
        None => return Err(wrong("role", &Value::Null, "a role such as user")),
    }
    let content = match fields.get("content") {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => parts.iter().map(text_of).collect(),
        Some(_) => None,
    };
    let content = content.ok_or_else(|| {
        wrong(
            "content",
            &fields["content"],
            "text, or a list of text parts (this model reads text only)",
        )
    })?;
    fields.insert("content".into(), json!(content));
    normalise_calls(&mut fields, takes_text);
    Ok(Value::Object(fields))
}

fn text_of(part: &Value) -> Option<&str> {
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text" | "refusal") | None => part
            .as_str()
            .or_else(|| part.get("text").or_else(|| part.get("refusal"))?.as_str()),
        Some(_) => None,
    }
}

/// Calls as templates go over them: each with a function whose arguments are an object, and no empty list of calls,
/// which some templates take for calls.
///
/// `transformers` wants objects, and vLLM makes objects of JSON text and of nothing. Here the rest becomes one as well:
/// a history that cannot be rendered would end its session for good.
fn normalise_calls(fields: &mut Map<String, Value>, takes_text: bool) {
    let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        normalise_call(call, takes_text);
    }
    let calls = fields.get("tool_calls");
    if calls.is_some_and(|calls| calls.is_null() || calls.as_array().is_some_and(Vec::is_empty)) {
        fields.remove("tool_calls");
    }
    if let Some(Value::Object(function)) = fields.get_mut("function_call") {
        read_arguments(function, takes_text);
    }
}

fn normalise_call(call: &mut Value, takes_text: bool) {
    // A custom tool takes one text.
    if let Some(custom) = call.get("custom").cloned() {
        let function = json!({"name": custom["name"], "arguments": {"input": custom["input"]}});
        *call = json!({"id": call["id"], "type": "function", "function": function});
    }
    // Some clients leave the object around a function out.
    let function = match call {
        Value::Object(call) if call.get("function").is_some_and(Value::is_object) => {
            call.get_mut("function")
        }
        call => Some(call),
    };
    if let Some(Value::Object(function)) = function {
        read_arguments(function, takes_text);
    }
}

/// Makes an object of a call's arguments, which the API carries as JSON text; one that is text of an object may stay.
fn read_arguments(function: &mut Map<String, Value>, takes_text: bool) {
    let given = function.get("arguments").unwrap_or(&Value::Null);
    let is_object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).is_ok();
    if takes_text && given.as_str().is_some_and(is_object) {
        return;
    }
    let object = object_of(given, 0);
    function.insert("arguments".into(), Value::Object(object));
}

/// How often JSON text is looked for in JSON text: some clients quote arguments twice.
const QUOTED: usize = 3;

fn object_of(given: &Value, depth: usize) -> Map<String, Value> {
    match given {
        Value::Object(object) => object.clone(),
        Value::Null => Map::new(),
        Value::String(text) if text.trim().is_empty() => Map::new(),
        Value::String(text) if depth < QUOTED => match serde_json::from_str(text) {
            Ok(read @ (Value::Object(_) | Value::String(_) | Value::Null)) => {
                object_of(&read, depth + 1)
            }
            Ok(_) | Err(_) => unreadable(text.as_str().into()),
        },
        other => unreadable(other.clone()),
    }
}

/// What is no object, under the name that Anthropic gives it.
fn unreadable(given: Value) -> Map<String, Value> {
    Map::from_iter([("INVALID_JSON".to_owned(), given)])
}

/// A value for an error message: long content is not repeated in it.
fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "missing".into(),
        Value::Array(parts) => parts
            .iter()
            .find(|part| text_of(part).is_none())
            .and_then(|part| part.get("type")?.as_str())
            .map_or_else(
                || "a list".into(),
                |kind| format!("a part of type {kind:.40}"),
            ),
        Value::Object(_) => "an object".into(),
        Value::String(_) => "text".into(),
        other => other.to_string(),
    }
}
