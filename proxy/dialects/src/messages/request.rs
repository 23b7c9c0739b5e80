//! Converts a request's messages, system prompt and tools to chat form.

use metaclaw_chat::{Message, MessageError};
use serde_json::{Map, Value, json};

use super::blocks;

/// Converts one element of `messages`. A user message with tool results becomes several: first the results, each as a
/// tool's message, then the rest.
pub(crate) fn item(item: &Value) -> Result<Vec<Message>, MessageError> {
    let message = Message::try_from(item.clone())?;
    let Some(Value::Array(given)) = message.get("content") else {
        return Ok(vec![message]);
    };
    if message.get("role").is_some_and(|role| role == "assistant") {
        let said = blocks::assistant(given.clone());
        return Ok(vec![Message::try_from(said)?]);
    }
    let is_result = |block: &&Value| block["type"] == "tool_result";
    let results = given.iter().filter(is_result).map(result);
    let mut messages: Vec<Message> = results.collect::<Result<_, _>>()?;
    let others = given.iter().filter(|block| !is_result(block)).cloned();
    let others: Vec<Value> = others.collect();
    if !others.is_empty() || messages.is_empty() {
        let mut said = message.as_map().clone();
        said.insert("content".into(), blocks::content(&others));
        messages.push(Message::try_from(Value::Object(said))?);
    }
    Ok(messages)
}

/// Converts a tool's result to the tool's message. The mark for an error is kept in Anthropic's form.
fn result(block: &Value) -> Result<Message, MessageError> {
    let content = match &block["content"] {
        Value::Array(given) => blocks::content(given),
        Value::Null => Value::String(String::new()),
        given => given.clone(),
    };
    let mut message =
        json!({ "role": "tool", "tool_call_id": block["tool_use_id"], "content": content });
    if block["is_error"] == true {
        message["is_error"] = Value::Bool(true);
    }
    Message::try_from(message)
}

pub(crate) fn system(value: &Value) -> Option<Message> {
    let content = match value {
        Value::String(text) => Value::String(text.clone()),
        Value::Array(given) if !given.is_empty() => blocks::content(given),
        _ => return None,
    };
    Message::try_from(json!({ "role": "system", "content": content })).ok()
}

/// Converts the `tools` field. Tools without a schema are the provider's own, and stay unchanged.
pub(crate) fn tools(tools: &Value) -> Value {
    let Value::Array(tools) = tools else {
        return tools.clone();
    };
    tools.iter().map(tool).collect()
}

fn tool(tool: &Value) -> Value {
    let Some(schema) = tool.get("input_schema") else {
        return tool.clone();
    };
    let mut function = Map::new();
    for name in ["name", "description", "strict"] {
        if let Some(value) = tool.get(name) {
            function.insert(name.to_owned(), value.clone());
        }
    }
    function.insert("parameters".into(), schema.clone());
    json!({ "type": "function", "function": function })
}
