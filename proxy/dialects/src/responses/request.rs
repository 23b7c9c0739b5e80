//! The parts of a content, the instructions and the tools of a request, in chat shape.

use metaclaw_chat::Message;
use serde_json::{Map, Value, json};

/// A list of parts as chat content: a single text alone, else a list.
pub(super) fn content(parts: &[Value]) -> Value {
    match parts {
        [one] if is_text(one) => one["text"].clone(),
        parts => parts.iter().map(part).collect(),
    }
}

/// A part; one that chat has no word for stays as it came.
pub(super) fn part(part: &Value) -> Value {
    let said = match part["type"].as_str() {
        _ if is_text(part) => Some(json!({ "type": "text", "text": part["text"] })),
        Some("input_image" | "computer_screenshot") => image(part),
        Some("input_file") => Some(json!({
            "type": "file",
            "file": some(part, &["file_id", "filename", "file_data", "file_url"]),
        })),
        _ => None,
    };
    said.unwrap_or_else(|| part.clone())
}

/// The `instructions` field: a text, or items of it.
pub(crate) fn system(value: &Value) -> Option<Message> {
    match value {
        Value::String(text) => Some(Message::system(text)),
        Value::Array(items) if !items.is_empty() => {
            let texts = items.iter().filter_map(|item| super::item(item).ok());
            let texts: Vec<String> = texts.map(|item| item.text().into_owned()).collect();
            Some(Message::system(texts.join("\n")))
        }
        _ => None,
    }
}

/// The `tools` field. Tools that are no functions are the provider's own, and stay as they came.
pub(crate) fn tools(tools: &Value) -> Value {
    let Value::Array(tools) = tools else {
        return tools.clone();
    };
    let tool = |tool: &Value| match tool["type"].as_str() {
        Some(kind @ "function") if tool.get(kind).is_none() => {
            let function = some(tool, &["name", "description", "parameters", "strict"]);
            json!({ "type": kind, kind: function })
        }
        Some(kind @ "custom") if tool.get(kind).is_none() => {
            json!({ "type": kind, kind: some(tool, &["name", "description", "format"]) })
        }
        _ => tool.clone(),
    };
    tools.iter().map(tool).collect()
}

fn is_text(part: &Value) -> bool {
    let kind = part["type"].as_str();
    matches!(kind, Some("input_text" | "output_text" | "text")) && part["text"].is_string()
}

fn image(part: &Value) -> Option<Value> {
    let url = part["image_url"].as_str()?;
    let mut image = Map::new();
    image.insert("url".into(), url.into());
    image.extend(some(part, &["detail"]));
    Some(json!({ "type": "image_url", "image_url": image }))
}

/// Those of the fields that are there and say something.
fn some(object: &Value, names: &[&str]) -> Map<String, Value> {
    let field = |name: &&str| {
        let value = object.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    };
    names.iter().filter_map(field).collect()
}
