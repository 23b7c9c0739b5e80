//! Converts the instructions and the tools of a request to chat form.

use metaclaw_chat::Message;
use serde_json::{Value, json};

use super::{items, parts::some};

pub(crate) fn system(value: &Value) -> Option<Message> {
    match value {
        Value::String(text) => Some(Message::system(text)),
        Value::Array(items) if !items.is_empty() => {
            let texts = items.iter().filter_map(|item| items::item(item).ok());
            let texts: Vec<String> = texts.map(|item| item.text().into_owned()).collect();
            Some(Message::system(texts.join("\n")))
        }
        _ => None,
    }
}

/// Converts the `tools` field. Tools that are not functions are the provider's own, and stay unchanged.
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
