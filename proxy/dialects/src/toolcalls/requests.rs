//! Converts agents' messages to the forms that chat templates know.

use serde_json::{Map, Value, json};

/// OpenClaw's text in the owner's name at the beginning of a new session.
const NEW_SESSION: &str = "a new session was started via /new or /reset";

/// Its replacement, because providers' filters treated the original as an attack.
const GREETING: &str = "A new chat session has just started. Greet the user briefly, in one to three \
    sentences, and ask what they would like to do.";

/// Applies [`bootstrap`] and [`normalise`] to each message of a chat request. Returns `None` if this changes nothing.
pub fn request(body: &Value) -> Option<Value> {
    let messages = body["messages"].as_array()?;
    let changed = |message| bootstrap(message).or_else(|| normalise(message));
    let changed: Vec<Option<Value>> = messages.iter().map(changed).collect();
    if changed.iter().all(Option::is_none) {
        return None;
    }
    let each = changed.into_iter().zip(messages);
    let messages = each.map(|(changed, message)| changed.unwrap_or_else(|| message.clone()));
    let mut body = body.clone();
    body["messages"] = messages.collect();
    Some(body)
}

/// Replaces OpenClaw's user message at the beginning of a new session by one that no filter refuses.
pub fn bootstrap(message: &Value) -> Option<Value> {
    let is_it = message["role"] == "user"
        && text(&message["content"])
            .to_lowercase()
            .contains(NEW_SESSION);
    is_it.then(|| with(message, "content", GREETING))
}

/// Converts a message to the form of chat completions: role `developer` to `system`, OpenClaw's `toolResult` to `tool`,
/// `toolCall` and `thinking` parts of an assistant to fields, and every call to one with an id, a type and arguments as
/// JSON text. Returns `None` if it has this form already.
pub fn normalise(message: &Value) -> Option<Value> {
    match message["role"].as_str()? {
        "developer" => Some(with(message, "role", "system")),
        "toolResult" => Some(tool_result(message)),
        "assistant" => assistant(message),
        _ => None,
    }
}

fn tool_result(message: &Value) -> Value {
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(|name| message.get(name));
        values.find(|value| value.is_string()).cloned()
    };
    let mut out = Map::new();
    out.insert("role".into(), "tool".into());
    if let Some(id) = first(["toolCallId", "tool_call_id"]) {
        out.insert("tool_call_id".into(), id);
    }
    if let Some(name) = first(["toolName", "name"]) {
        out.insert("name".into(), name);
    }
    let content = match &message["content"] {
        Value::Array(parts) if !parts.iter().all(|part| part_text(part).is_some()) => {
            message["content"].clone()
        }
        content => text(content).into(),
    };
    out.insert("content".into(), content);
    Value::Object(out)
}

fn assistant(message: &Value) -> Option<Value> {
    let (mut calls, mut thinking, mut rest) = (Vec::new(), String::new(), Vec::new());
    for part in message["content"].as_array().into_iter().flatten() {
        match part["type"].as_str() {
            Some("toolCall") => calls.push(part.clone()),
            Some("thinking") => thinking.push_str(part["thinking"].as_str().unwrap_or_default()),
            Some(_) | None => rest.push(part.clone()),
        }
    }
    let has_parts = !calls.is_empty() || !thinking.is_empty();
    let known = message["tool_calls"].as_array().into_iter().flatten();
    calls.splice(0..0, known.cloned());
    let whole: Vec<Value> = calls.iter().enumerate().map(|(n, c)| call(n, c)).collect();
    let is_whole = message["tool_calls"]
        .as_array()
        .map_or(whole.is_empty(), |c| *c == whole);
    if is_whole && !has_parts {
        return None;
    }
    let mut out = message.clone();
    if has_parts {
        out["content"] = match rest.as_slice() {
            [] => Value::Null,
            rest if rest.iter().all(|part| part_text(part).is_some()) => {
                text(&Value::Array(rest.to_vec())).into()
            }
            _ => rest.into(),
        };
    }
    if !thinking.is_empty() && out.get("reasoning_content").is_none() {
        out["reasoning_content"] = thinking.into();
    }
    if !whole.is_empty() {
        out["tool_calls"] = whole.into();
    }
    Some(out)
}

/// Completes a call of either form. OpenAI's custom tools, whose input is not JSON, stay unchanged.
fn call(n: usize, call: &Value) -> Value {
    if call["type"] == "custom" {
        return call.clone();
    }
    let function = call.get("function").unwrap_or(call);
    let id = call["id"].as_str().filter(|id| !id.is_empty());
    let id = id.map_or_else(|| format!("call_{n}"), str::to_owned);
    let arguments = match &function["arguments"] {
        Value::Null => "{}".to_owned(),
        Value::String(text) => text.clone(),
        arguments => arguments.to_string(),
    };
    let name = function["name"].as_str().unwrap_or_default();
    let mut out = match call {
        Value::Object(fields) if fields.contains_key("function") => fields.clone(),
        _ => Map::new(),
    };
    out.insert("id".into(), id.into());
    out.insert("type".into(), "function".into());
    let mut function = match out.remove("function") {
        Some(Value::Object(function)) => function,
        Some(_) | None => Map::new(),
    };
    function.insert("name".into(), name.into());
    function.insert("arguments".into(), arguments.into());
    out.insert("function".into(), json!(function));
    Value::Object(out)
}

fn with(message: &Value, field: &str, value: &str) -> Value {
    let mut message = message.clone();
    message[field] = value.into();
    message
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(part_text).collect();
            texts.join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn part_text(part: &Value) -> Option<&str> {
    match part {
        Value::String(text) => Some(text),
        part if part["type"] == "text" => part["text"].as_str(),
        _ => None,
    }
}
