//! Translates an Anthropic request to a chat request: its conversation.

use serde_json::{Map, Value, json};

use super::{
    accounting,
    at::{CHAT, PathValue},
    chat_messages::{add_system, add_user, text_part, tool_message},
    content::{Place, as_text, parts},
    error::TranslateError,
    names, params,
    wire::{arguments, copy, filled},
};
use crate::calls::function_call;

pub(super) fn request(body: &Value) -> Result<Value, TranslateError> {
    PathValue::new("the body", body).object()?;
    let mut messages = Vec::new();
    system(&PathValue::top(body, "system"), &mut messages)?;
    let given: Vec<PathValue<'_>> = PathValue::top(body, "messages").items()?.collect();
    let last_reply = given.iter().rposition(|it| it["role"] == "assistant");
    for (n, message) in given.iter().enumerate() {
        message.object()?;
        let content = message.field("content");
        let place = match last_reply {
            Some(last) if n < last => Place::History,
            Some(_) | None => Place::New,
        };
        match message["role"].as_str() {
            Some("user") => user(&content, place, &mut messages)?,
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

/// Joins system blocks to one text, because not every server accepts parts, and removes Claude Code's accounting line.
fn system(text: &PathValue<'_>, out: &mut Vec<Value>) -> Result<(), TranslateError> {
    let texts = text.texts()?.into_iter().map(accounting::without);
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    add_system(out, &texts.join("\n"), flat);
    Ok(())
}

/// Writes tool results first, each as a separate message. Images in them go with the rest.
fn user(content: &PathValue<'_>, place: Place, out: &mut Vec<Value>) -> Result<(), TranslateError> {
    if content.is_string() {
        add_user(out, vec![text_part(content.string()?)], flat);
        return Ok(());
    }
    let mut images = Vec::new();
    let mut said = Vec::new();
    for block in content.items()? {
        if block["type"] == "tool_result" {
            let id = block.field("tool_use_id").string()?;
            out.push(tool_message(
                id,
                result(&block.field("content"))?,
                &mut images,
            ));
        } else {
            said.extend(parts(&block, place)?);
        }
    }
    images.extend(said);
    add_user(out, images, flat);
    Ok(())
}

fn flat(parts: Vec<Value>) -> Value {
    match parts.as_slice() {
        [one] if one["type"] == "text" => one["text"].clone(),
        _ => Value::Array(parts),
    }
}

fn result(content: &PathValue<'_>) -> Result<Vec<Value>, TranslateError> {
    if let Value::String(text) = content.value {
        return Ok(vec![text_part(text)]);
    }
    let blocks = content.items()?.map(|block| parts(&block, Place::History));
    Ok(blocks.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Joins an assistant's blocks to the form of chat completions. Blocks of the provider's own tools, and unknown ones,
/// become text.
pub(super) fn assistant(content: &PathValue<'_>) -> Result<Value, TranslateError> {
    if content.is_string() {
        return Ok(json!({ "role": "assistant", "content": content.value }));
    }
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for block in content.items()? {
        match block["type"].as_str() {
            Some("text") => text.push_str(block.field("text").string()?),
            Some("thinking") => reasoning.push_str(block.field("thinking").string()?),
            // Only the provider that made it can read it.
            Some("redacted_thinking") => {}
            Some("tool_use") => calls.push(tool_call(&block)?),
            _ => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&as_text(&block));
                text.push('\n');
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

fn tool_call(block: &PathValue<'_>) -> Result<Value, TranslateError> {
    let id = block.field("id").string()?;
    let name = block.field("name");
    let name = filled(&name).ok_or_else(|| name.invalid("a name"))?;
    let arguments = arguments(&block["input"]);
    let (id, name) = (names::chat_id(id), names::tool(name));
    Ok(function_call(&id.into(), &name.into(), &arguments))
}
