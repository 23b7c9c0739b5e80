//! Converts content blocks to an assistant's message, and to the parts of any other message.

use serde_json::{Map, Value, json};

use crate::calls::{arguments_text, function_call};

/// Converts an assistant's blocks to its message in chat form.
///
/// Consecutive texts become one text, because citations split sentences into blocks. Thinking becomes
/// `reasoning_content`, and its blocks stay with their signatures in `thinking_blocks`. Calls of the client's tools
/// become `tool_calls`. Blocks that chat completions do not have (the provider's own tools) stay unchanged in the
/// content.
pub(super) fn assistant(blocks: Vec<Value>) -> Value {
    let mut turn = AssistantTurn::default();
    for block in blocks {
        turn.add(block);
    }
    turn.message()
}

/// Converts blocks of a user, of the system or of a tool's result to chat content: a string for a single text, else a
/// list of parts.
pub(super) fn content(blocks: &[Value]) -> Value {
    match blocks {
        [one] if one["type"] == "text" && one["text"].is_string() => one["text"].clone(),
        blocks => blocks.iter().map(part).collect(),
    }
}

#[derive(Default)]
struct AssistantTurn {
    parts: Vec<Value>,
    in_text: bool,
    thinking: Vec<Value>,
    calls: Vec<Value>,
}

// === impl Turn ===

impl AssistantTurn {
    fn add(&mut self, block: Value) {
        let was_text = std::mem::take(&mut self.in_text);
        match block["type"].as_str() {
            Some("text") => {
                self.in_text = true;
                self.text(block["text"].as_str().unwrap_or_default(), was_text);
            }
            Some("thinking" | "redacted_thinking") => self.thinking.push(block),
            Some("tool_use") => {
                let arguments = arguments_text(&block["input"]);
                let call = function_call(&block["id"], &block["name"], &arguments);
                self.calls.push(call);
            }
            _ => self.parts.push(block),
        }
    }

    fn text(&mut self, more: &str, goes_on: bool) {
        match self.parts.last_mut().and_then(|part| part.get_mut("text")) {
            Some(Value::String(text)) if goes_on => text.push_str(more),
            _ => self.parts.push(json!({ "type": "text", "text": more })),
        }
    }

    fn message(self) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        message.insert(
            "content".into(),
            message_content(self.parts, !self.calls.is_empty()),
        );
        let thought: Vec<&str> = self.thinking.iter().filter_map(thinking_text).collect();
        if !thought.is_empty() {
            message.insert("reasoning_content".into(), thought.join("\n").into());
        }
        if !self.thinking.is_empty() {
            message.insert("thinking_blocks".into(), self.thinking.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.into());
        }
        message.into()
    }
}

fn message_content(parts: Vec<Value>, has_calls: bool) -> Value {
    let texts = parts.iter().map(|part| match part["type"].as_str() {
        Some("text") => part["text"].as_str(),
        _ => None,
    });
    match texts.collect::<Option<Vec<&str>>>() {
        Some(texts) if has_calls && texts.iter().all(|text| text.is_empty()) => Value::Null,
        Some(texts) => texts.join("\n").into(),
        None => parts.into(),
    }
}

fn thinking_text(block: &Value) -> Option<&str> {
    block["thinking"].as_str().filter(|text| !text.is_empty())
}

/// Converts a block to a part. A block that chat completions do not have stays unchanged. The mark for the end of a
/// cached prefix is not part of the conversation, and moves from request to request.
fn part(block: &Value) -> Value {
    let said = match block["type"].as_str() {
        Some("image") => image(&block["source"]),
        Some("document") => document(block),
        _ => None,
    };
    said.unwrap_or_else(|| {
        let mut block = block.clone();
        if let Some(block) = block.as_object_mut() {
            block.shift_remove("cache_control");
        }
        block
    })
}

fn image(source: &Value) -> Option<Value> {
    let url = match source["type"].as_str()? {
        "base64" => data_url(source)?,
        "url" => source["url"].as_str()?.to_owned(),
        _ => return None,
    };
    Some(json!({ "type": "image_url", "image_url": { "url": url } }))
}

fn document(block: &Value) -> Option<Value> {
    let source = &block["source"];
    if source["type"] != "base64" {
        return None;
    }
    let mut file = Map::new();
    if let Some(title) = block["title"].as_str() {
        file.insert("filename".into(), title.into());
    }
    file.insert("file_data".into(), data_url(source)?.into());
    Some(json!({ "type": "file", "file": file }))
}

fn data_url(source: &Value) -> Option<String> {
    let data = source["data"].as_str()?;
    let kind = source["media_type"].as_str().unwrap_or_default();
    Some(format!("data:{kind};base64,{data}"))
}
