//! Converts items of a request's input and of a reply's output to messages.
//!
//! One turn of a model is several items: its reasoning, its text, each of its calls. Each becomes an assistant's
//! message here, and consecutive ones are joined into one, as in chat completions.

use metaclaw_chat::{Message, MessageError, OF_ANOTHER};
use serde_json::{Map, Value, json};

use super::parts::{content, part};
use crate::{
    calls::{arguments_text, function_call},
    grow::append,
};

/// Converts one item to a message. `input` may be a single text, which is the user's.
///
/// It follows the gateway's rules: an item with a role has that role, a tool's result is the tool's, and anything else
/// is the model's.
pub(crate) fn item(item: &Value) -> Result<Message, MessageError> {
    let Value::Object(fields) = item else {
        return match item {
            Value::String(text) => Ok(Message::user(text)),
            other => Message::try_from(other.clone()),
        };
    };
    let kind = item["type"].as_str().unwrap_or_default();
    let message = if fields.contains_key("role") {
        role_message(fields)
    } else if kind.ends_with("_output") {
        tool_output(item)
    } else {
        match kind {
            "" => return Err(MessageError::NoRole),
            "reasoning" => reasoning(item),
            "function_call" => tool_call(item, &item["name"], &item["arguments"]),
            "custom_tool_call" => custom_call(item),
            "item_reference" => assistant(json!({ "references": [item["id"]] })),
            kind => other_item(item, kind),
        }
    };
    Message::try_from(Value::Object(message))
}

/// Appends a message. A message of the model is added to the previous one if that is the model's too.
pub(crate) fn join(messages: &mut Vec<Message>, more: Message) {
    let is_models = |message: &Message| message.get("role").is_some_and(|role| role == "assistant");
    match messages.pop_if(|last| is_models(last) && is_models(&more)) {
        Some(last) => messages.extend(joined(last, more)),
        None => messages.push(more),
    }
}

/// Converts a reply's items to the model's message, or returns `None` if there are none and the model is not done.
pub(super) fn turn(output: &[Value], is_over: bool) -> Option<Message> {
    let mut messages = Vec::new();
    for item in output.iter().filter_map(|value| item(value).ok()) {
        join(&mut messages, item);
    }
    match messages.pop() {
        // An item of another role would split the turn. No known item does.
        Some(message) => Some(message),
        None => is_over.then(|| Message::assistant("")),
    }
}

fn joined(last: Message, more: Message) -> Option<Message> {
    let (Value::Object(mut last), Value::Object(more)) = (last.into(), more.into()) else {
        return None;
    };
    for (name, value) in more {
        match name.as_str() {
            "role" => {}
            "content" | "reasoning_content" | "refusal" => {
                add_content(last.entry(name).or_insert(Value::Null), value);
            }
            _ => append(&mut last, name, value),
        }
    }
    Message::try_from(Value::Object(last)).ok()
}

fn add_content(known: &mut Value, more: Value) {
    match (known, more) {
        (_, Value::Null) => {}
        (known @ Value::Null, more) => *known = more,
        (Value::String(known), Value::String(more)) => {
            if !known.is_empty() && !more.is_empty() {
                known.push('\n');
            }
            known.push_str(&more);
        }
        (Value::Array(known), more) => known.extend(parts(more)),
        (known, more) => {
            let mut all = parts(known.take());
            all.extend(parts(more));
            *known = all.into();
        }
    }
}

fn parts(content: Value) -> Vec<Value> {
    match content {
        Value::Array(parts) => parts,
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        other => vec![other],
    }
}

fn role_message(fields: &Map<String, Value>) -> Map<String, Value> {
    let mut message = Map::new();
    message.insert(
        "role".into(),
        fields.get("role").cloned().unwrap_or_default(),
    );
    // They say that a user message is somebody else's.
    let is_users = message.get("role").is_some_and(|role| role == "user");
    let of_another = |name: &str| is_users && OF_ANOTHER.contains(&name);
    let kept = fields.iter().filter(|field| of_another(field.0));
    message.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    let given = fields.get("content").cloned().unwrap_or_default();
    let is_models = message.get("role").is_some_and(|role| role == "assistant");
    match given {
        Value::Array(given) if is_models => assistant_content(&mut message, &given),
        Value::Array(given) => drop(message.insert("content".into(), content(&given))),
        given => drop(message.insert("content".into(), given)),
    }
    message
}

fn assistant_content(message: &mut Map<String, Value>, given: &[Value]) {
    let (refused, said): (Vec<&Value>, Vec<&Value>) =
        given.iter().partition(|part| part["type"] == "refusal");
    let parts: Vec<Value> = said.into_iter().map(part).collect();
    let texts = parts.iter().map(|part| match part["type"].as_str() {
        Some("text") => part["text"].as_str(),
        _ => None,
    });
    let content = match texts.collect::<Option<String>>() {
        Some(text) if text.is_empty() && !refused.is_empty() => Value::Null,
        Some(text) => text.into(),
        None => parts.into(),
    };
    message.insert("content".into(), content);
    if !refused.is_empty() {
        let refused = refused.iter().filter_map(|part| part["refusal"].as_str());
        message.insert("refusal".into(), refused.collect::<String>().into());
    }
}

fn tool_output(item: &Value) -> Map<String, Value> {
    let id = [&item["call_id"], &item["id"]];
    let id = id.into_iter().find(|id| !id.is_null());
    let content = match &item["output"] {
        Value::Array(given) => content(given),
        Value::Object(given) if given.contains_key("type") => json!([part(&item["output"])]),
        Value::Null => Value::String(String::new()),
        given => given.clone(),
    };
    fields(json!({ "role": "tool", "tool_call_id": id, "content": content }))
}

/// Converts reasoning: its text if the model shows it, else its summary. The item stays, with the part that only the
/// provider can read.
fn reasoning(item: &Value) -> Map<String, Value> {
    let texts = |list: &Value| {
        let texts = list.as_array().into_iter().flatten();
        let texts: Vec<&str> = texts.filter_map(|part| part["text"].as_str()).collect();
        texts.join("\n")
    };
    let text = match texts(&item["content"]) {
        text if text.is_empty() => texts(&item["summary"]),
        text => text,
    };
    if text.is_empty() {
        assistant(json!({ "reasoning_items": [item] }))
    } else {
        assistant(json!({ "reasoning_content": text, "reasoning_items": [item] }))
    }
}

fn tool_call(item: &Value, name: &Value, arguments: &Value) -> Map<String, Value> {
    let call = function_call(&item["call_id"], name, &arguments_text(arguments));
    assistant(json!({ "tool_calls": [call] }))
}

fn custom_call(item: &Value) -> Map<String, Value> {
    let custom = json!({ "name": item["name"], "input": item["input"] });
    assistant(
        json!({ "tool_calls": [{ "id": item["call_id"], "type": "custom", "custom": custom }] }),
    )
}

/// A call of one of OpenAI's own tools that the client executes (`local_shell_call`, `computer_call`) becomes a call of
/// a function with that name. An item that chat completions do not have stays unchanged.
fn other_item(item: &Value, kind: &str) -> Map<String, Value> {
    let doing = ["action", "operation", "arguments"];
    let doing = doing.into_iter().find_map(|name| item.get(name));
    match (kind.strip_suffix("_call"), doing) {
        (Some(name), Some(doing)) if item["call_id"].is_string() => {
            tool_call(item, &Value::from(name), doing)
        }
        _ => fields(json!({ "role": "assistant", "content": [item] })),
    }
}

fn assistant(more: Value) -> Map<String, Value> {
    let mut message = fields(json!({ "role": "assistant", "content": null }));
    message.extend(fields(more));
    message
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
