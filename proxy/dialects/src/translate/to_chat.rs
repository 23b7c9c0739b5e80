//! An Anthropic request as a chat one: its conversation.

use serde_json::{Map, Value, json};

use super::{
    content::part,
    error::TranslateError,
    params,
    wire::{CHAT, arguments, copy, filled, invalid, list, object, string, texts, unsayable},
};

pub(super) fn request(body: &Value) -> Result<Value, TranslateError> {
    object("the body", body)?;
    let mut messages = Vec::new();
    system("system", &body["system"], &mut messages)?;
    for (n, message) in list("messages", &body["messages"])?.iter().enumerate() {
        let field = format!("messages[{n}]");
        object(&field, message)?;
        let content = format!("{field}.content");
        match message["role"].as_str() {
            Some("user") => user(&content, &message["content"], &mut messages)?,
            Some("assistant") => messages.push(assistant(&content, &message["content"])?),
            Some("system") => system(&content, &message["content"], &mut messages)?,
            Some(_) | None => {
                let allowed = "\"user\", \"assistant\" and \"system\"";
                let role = format!("{field}.role");
                return Err(unsayable(role, &message["role"], CHAT, allowed));
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
fn system(field: &str, value: &Value, out: &mut Vec<Value>) -> Result<(), TranslateError> {
    let text = texts(field, value)?.join("\n");
    if !text.is_empty() {
        out.push(json!({ "role": "system", "content": text }));
    }
    Ok(())
}

/// Results of tools first, each its own message; what they hold of images goes with the rest.
fn user(field: &str, content: &Value, out: &mut Vec<Value>) -> Result<(), TranslateError> {
    if content.is_string() {
        out.push(json!({ "role": "user", "content": content }));
        return Ok(());
    }
    let mut images = Vec::new();
    let mut parts = Vec::new();
    for (n, block) in list(field, content)?.iter().enumerate() {
        let field = format!("{field}[{n}]");
        if block["type"] == "tool_result" {
            out.push(tool_message(&field, block, &mut images)?);
        } else {
            parts.push(part(&field, block)?);
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

fn tool_message(
    field: &str,
    block: &Value,
    images: &mut Vec<Value>,
) -> Result<Value, TranslateError> {
    let id = string(&format!("{field}.tool_use_id"), &block["tool_use_id"])?;
    let field = format!("{field}.content");
    let content = &block["content"];
    let mut texts = Vec::new();
    if let Value::String(text) = content {
        texts.push(text.clone());
    } else {
        for (n, block) in list(&field, content)?.iter().enumerate() {
            let part = part(&format!("{field}[{n}]"), block)?;
            match part["text"].as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => images.push(part),
            }
        }
    }
    Ok(json!({ "role": "tool", "tool_call_id": id, "content": texts.join("\n") }))
}

fn assistant(field: &str, content: &Value) -> Result<Value, TranslateError> {
    if content.is_string() {
        return Ok(json!({ "role": "assistant", "content": content }));
    }
    let mut said = Said::default();
    for (n, block) in list(field, content)?.iter().enumerate() {
        said.add(&format!("{field}[{n}]"), block)?;
    }
    Ok(said.into_message())
}

/// An assistant's blocks, put together as chat has them.
#[derive(Default)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<Value>,
}

// === impl Said ===

impl Said {
    pub(super) fn add(&mut self, field: &str, block: &Value) -> Result<(), TranslateError> {
        match block["type"].as_str() {
            Some("text") => {
                let text = string(&format!("{field}.text"), &block["text"])?;
                self.text.push_str(text);
            }
            Some("thinking") => {
                let text = string(&format!("{field}.thinking"), &block["thinking"])?;
                self.reasoning.push_str(text);
            }
            // Only its maker can read it.
            Some("redacted_thinking") => {}
            Some("tool_use") => self.calls.push(tool_call(field, block)?),
            Some(_) => {
                let allowed = "\"text\", \"thinking\" and \"tool_use\"";
                let kind = format!("{field}.type");
                return Err(unsayable(kind, &block["type"], CHAT, allowed));
            }
            None => {
                return Err(invalid(format!("{field}.type"), &block["type"], "a string"));
            }
        }
        Ok(())
    }

    pub(super) fn into_message(self) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        let content = if self.text.is_empty() && !self.calls.is_empty() {
            Value::Null
        } else {
            self.text.into()
        };
        message.insert("content".into(), content);
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".into(), self.reasoning.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.into());
        }
        Value::Object(message)
    }
}

fn tool_call(field: &str, block: &Value) -> Result<Value, TranslateError> {
    let id = string(&format!("{field}.id"), &block["id"])?;
    let name = filled(&block["name"])
        .ok_or_else(|| invalid(format!("{field}.name"), &block["name"], "a name"))?;
    Ok(json!({
        "id": id,
        "type": "function",
        "function": { "name": name, "arguments": arguments(&block["input"]) },
    }))
}
