//! Converts messages from the form of clients to the form that templates expect.

use metaclaw_trainer_terms::json;
use serde_json::{Map, Value, json};

use super::error::RenderError;

/// Makes content one string, arguments of tool calls objects, and `developer` `system`.
///
/// Templates are written for Python dictionaries of that form. The OpenAI API allows more. A template that `takes_text`
/// gets arguments unchanged, so that the model's own call reads as it was sampled.
pub(super) fn normalise(messages: &[Value], takes_text: bool) -> Result<Vec<Value>, RenderError> {
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| one(index, message, takes_text))
        .collect()
}

/// Adds `text` to the system prompt. If there is none, adds it to the template's default, which a message of ours would
/// replace.
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

/// Joins the system messages at the beginning, and makes later ones the user's, as the gateway does for chat servers.
/// No two messages of the user follow each other, because such templates often refuse that too.
pub(super) fn system_first(messages: &mut Vec<Value>) {
    let is_late = |(n, message): (usize, &Value)| n > 0 && message["role"] == "system";
    if !messages.iter().enumerate().any(is_late) {
        return;
    }
    let mut ordered: Vec<Value> = Vec::with_capacity(messages.len());
    for mut message in messages.drain(..) {
        let is_first = ordered.iter().all(|message| message["role"] == "system");
        if message["role"] == "system" && !is_first {
            message["role"] = "user".into();
        }
        match ordered.last_mut() {
            Some(last)
                if last["role"] == message["role"]
                    && message["role"] != "assistant"
                    && message["role"] != "tool" =>
            {
                let texts = [&last["content"], &message["content"]]
                    .map(|content| content.as_str().unwrap_or_default());
                last["content"] = texts.join("\n\n").into();
            }
            _ => ordered.push(message),
        }
    }
    *messages = ordered;
}

/// Moves results of tools into the message with their calls, as `tool_responses`, for templates that know no other
/// place for them. Text that follows them joins this message, because it is of the same turn.
pub(super) fn results_with_calls(messages: Vec<Value>) -> Vec<Value> {
    let mut moved: Vec<Value> = Vec::with_capacity(messages.len());
    for mut message in messages {
        let content = message["content"].take();
        let called = moved
            .last_mut()
            .filter(|last| last["tool_calls"].is_array());
        match (called, message["role"].as_str()) {
            (Some(called), Some("tool")) => {
                let mut results = match called["tool_responses"].take() {
                    Value::Array(results) => results,
                    _ => Vec::new(),
                };
                let calls = called["tool_calls"].as_array().into_iter().flatten();
                let is_its = |call: &&Value| call["id"] == message["tool_call_id"];
                let call = calls.clone().find(is_its);
                let call = call.or_else(|| calls.clone().nth(results.len()));
                let name = call.map_or(&message["name"], |call| &call["function"]["name"]);
                let name = name.as_str().unwrap_or("unknown");
                results.push(json!({"name": name, "response": content}));
                called["tool_responses"] = results.into();
            }
            (Some(called), Some("assistant"))
                if called.get("tool_responses").is_some()
                    && called["content"] == ""
                    && message.get("tool_calls").is_none() =>
            {
                called["content"] = content;
            }
            _ => {
                message["content"] = content;
                moved.push(message);
            }
        }
    }
    moved
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
    let allowed = "text, or a list of text parts (this model reads text only)";
    let content = content.ok_or_else(|| wrong("content", &fields["content"], allowed))?;
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

/// Converts calls to what templates iterate over: each has a function whose arguments are an object. An empty list of
/// calls is removed, because some templates treat it as calls.
///
/// `transformers` requires objects, and vLLM makes objects of JSON text and of nothing. Here anything else becomes an
/// object too, because a history that cannot be rendered would end its session for good.
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
    // A custom tool has one text as input.
    if let Some(custom) = call.get("custom").cloned() {
        let function = json!({"name": custom["name"], "arguments": {"input": custom["input"]}});
        *call = json!({"id": call["id"], "type": "function", "function": function});
    }
    // Some clients leave out the object around a function.
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

/// Makes an object of a call's arguments, which the API sends as JSON text. Text that is an object may stay text.
fn read_arguments(function: &mut Map<String, Value>, takes_text: bool) {
    let given = function.get("arguments").unwrap_or(&Value::Null);
    let is_object = |text: &str| json::read::<Map<String, Value>>(text).is_ok();
    if takes_text && given.as_str().is_some_and(is_object) {
        return;
    }
    let object = object_of(given, 0);
    function.insert("arguments".into(), Value::Object(object));
}

/// How many levels of JSON text in JSON text are parsed, because some clients quote arguments twice.
const QUOTED: usize = 3;

fn object_of(given: &Value, depth: usize) -> Map<String, Value> {
    match given {
        Value::Object(object) => object.clone(),
        Value::Null => Map::new(),
        Value::String(text) if text.trim().is_empty() => Map::new(),
        Value::String(text) if depth < QUOTED => match json::read(text) {
            Ok(read @ (Value::Object(_) | Value::String(_) | Value::Null)) => {
                object_of(&read, depth + 1)
            }
            Ok(_) | Err(_) => unreadable(text.as_str().into()),
        },
        other => unreadable(other.clone()),
    }
}

/// Wraps a value that is not an object under Anthropic's name for such input.
fn unreadable(given: Value) -> Map<String, Value> {
    Map::from_iter([("INVALID_JSON".to_owned(), given)])
}

/// Describes a value for an error message, without repeating long content.
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
