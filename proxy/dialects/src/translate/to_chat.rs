//! An Anthropic request as a chat one: its conversation.

use serde_json::{Map, Value, json};

use super::{
    at::{At, CHAT},
    content::part,
    error::TranslateError,
    params,
    wire::{arguments, copy, filled},
};
use crate::calls::function_call;

pub(super) fn request(body: &Value) -> Result<Value, TranslateError> {
    At::new("the body", body).object()?;
    let mut messages = Vec::new();
    system(&At::top(body, "system"), &mut messages)?;
    for message in At::top(body, "messages").items()? {
        message.object()?;
        let content = message.field("content");
        match message["role"].as_str() {
            Some("user") => user(&content, &mut messages)?,
            Some("assistant") => messages.push(assistant(&content)?),
            Some("system") => system(&content, &mut messages)?,
            Some(_) | None => {
                let allowed = "\"user\", \"assistant\" and \"system\"";
                return Err(message.field("role").unsayable(CHAT, allowed));
            }
        }
    }
    let mut out = Map::new();
    copy(body, "model", &mut out, "model");
    out.insert("messages".into(), messages.into());
    params::to_chat(body, &mut out)?;
    Ok(Value::Object(out))
}

/// System blocks as one text: not every server takes them in parts.
fn system(text: &At<'_>, out: &mut Vec<Value>) -> Result<(), TranslateError> {
    let text = text.texts()?.join("\n");
    if !text.is_empty() {
        out.push(json!({ "role": "system", "content": text }));
    }
    Ok(())
}

/// Results of tools first, each its own message; what they hold of images goes with the rest.
fn user(content: &At<'_>, out: &mut Vec<Value>) -> Result<(), TranslateError> {
    if content.is_string() {
        out.push(json!({ "role": "user", "content": content.value }));
        return Ok(());
    }
    let mut images = Vec::new();
    let mut parts = Vec::new();
    for block in content.items()? {
        if block["type"] == "tool_result" {
            out.push(tool_message(&block, &mut images)?);
        } else {
            parts.push(part(&block)?);
        }
    }
    images.extend(parts);
    if !images.is_empty() {
        out.push(json!({ "role": "user", "content": flat(images) }));
    }
    Ok(())
}

/// A lone text as a string, which every server takes.
fn flat(parts: Vec<Value>) -> Value {
    match parts.as_slice() {
        [one] if one["type"] == "text" => one["text"].clone(),
        _ => Value::Array(parts),
    }
}

fn tool_message(block: &At<'_>, images: &mut Vec<Value>) -> Result<Value, TranslateError> {
    let id = block.field("tool_use_id").string()?;
    let content = block.field("content");
    let mut texts = Vec::new();
    if let Value::String(text) = content.value {
        texts.push(text.clone());
    } else {
        for block in content.items()? {
            let part = part(&block)?;
            match part["text"].as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => images.push(part),
            }
        }
    }
    Ok(json!({ "role": "tool", "tool_call_id": id, "content": texts.join("\n") }))
}

/// An assistant's blocks, put together as chat has them.
pub(super) fn assistant(content: &At<'_>) -> Result<Value, TranslateError> {
    if content.is_string() {
        return Ok(json!({ "role": "assistant", "content": content.value }));
    }
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for block in content.items()? {
        match block["type"].as_str() {
            Some("text") => text.push_str(block.field("text").string()?),
            Some("thinking") => reasoning.push_str(block.field("thinking").string()?),
            // Only its maker can read it.
            Some("redacted_thinking") => {}
            Some("tool_use") => calls.push(tool_call(&block)?),
            _ => {
                let allowed = "\"text\", \"thinking\" and \"tool_use\"";
                return Err(block.field("type").unsayable_kind(CHAT, allowed));
            }
        }
    }
    let mut message = json!({ "role": "assistant", "content": text });
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        if text.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

fn tool_call(block: &At<'_>) -> Result<Value, TranslateError> {
    let id = block.field("id");
    id.string()?;
    let name = block.field("name");
    if filled(&name).is_none() {
        return Err(name.invalid("a name"));
    }
    let arguments = arguments(&block["input"]);
    Ok(function_call(id.value, name.value, &arguments))
}
