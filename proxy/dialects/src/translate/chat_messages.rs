//! The order of messages that every chat server accepts, whatever the caller's API: one system message at the
//! beginning, and no two messages of the user in a row. Templates of Qwen, Gemma and Mistral refuse anything else.

use serde_json::{Value, json};

use super::names;

type Join = fn(Vec<Value>) -> Value;

/// Adds a system text: to the system message if nothing else was said yet, else in the user's place.
pub(super) fn add_system(messages: &mut Vec<Value>, text: &str, join: Join) {
    if text.is_empty() {
        return;
    }
    match messages.as_mut_slice() {
        [] => messages.push(json!({ "role": "system", "content": text })),
        [first] if first["role"] == "system" => {
            let before = first["content"].as_str().unwrap_or_default();
            first["content"] = format!("{before}\n\n{text}").into();
        }
        _ => add_user(messages, vec![text_part(text)], join),
    }
}

pub(super) fn add_user(messages: &mut Vec<Value>, mut parts: Vec<Value>, join: Join) {
    if parts.is_empty() {
        return;
    }
    let Some(last) = messages.last_mut().filter(|it| it["role"] == "user") else {
        messages.push(json!({ "role": "user", "content": join(parts) }));
        return;
    };
    let mut before = match last["content"].take() {
        Value::Array(parts) => parts,
        text => vec![text_part(text.as_str().unwrap_or_default())],
    };
    before.append(&mut parts);
    last["content"] = join(before);
}

/// Makes the message with a tool's result. Parts that are no text are added to `images`, because servers accept only
/// text in it.
pub(super) fn tool_message(id: &str, parts: Vec<Value>, images: &mut Vec<Value>) -> Value {
    let (texts, others): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part["text"].is_string());
    images.extend(others);
    let texts: Vec<&str> = texts.iter().filter_map(|it| it["text"].as_str()).collect();
    json!({ "role": "tool", "tool_call_id": names::chat_id(id), "content": texts.join("\n") })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}
