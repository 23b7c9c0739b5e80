//! Messages as clients send them, made into what templates expect.

use serde_json::{Map, Value, json};

use super::RenderError;

/// Content as one string, arguments of tool calls as objects, `developer` as `system`.
///
/// Templates are written against Python dictionaries of that form; the OpenAI API allows more.
pub(super) fn normalise(messages: &[Value]) -> Result<Vec<Value>, RenderError> {
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| one(index, message))
        .collect()
}

/// Adds `text` to the system text; with none, to the template's default, which a message of ours would replace.
pub(super) fn append_system(messages: &mut Vec<Value>, default: Option<&str>, text: &str) {
    let joined = |old: &str| {
        if old.is_empty() {
            text.to_owned()
        } else {
            format!("{old}\n\n{text}")
        }
    };
    match messages.first_mut() {
        Some(first) if first["role"] == "system" => {
            first["content"] = json!(joined(first["content"].as_str().unwrap_or("")));
        }
        _ => {
            let content = joined(default.unwrap_or(""));
            messages.insert(0, json!({"role": "system", "content": content}));
        }
    }
}

fn one(index: usize, message: &Value) -> Result<Value, RenderError> {
    let wrong = |field: &str, value: &Value, allowed| RenderError::Message {
        index,
        field: field.to_owned(),
        value: kind_of(value),
        allowed,
    };
    let Some(fields) = message.as_object() else {
        return Err(wrong("role", message, "a message with role and content"));
    };
    let mut fields = fields.clone();
    match fields.get("role").and_then(Value::as_str) {
        Some("developer") => {
            fields.insert("role".into(), json!("system"));
        }
        Some(_) => {}
        None => return Err(wrong("role", &Value::Null, "a role such as user")),
    }
    let content = match fields.get("content") {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => parts.iter().map(text_of).collect(),
        Some(_) => None,
    };
    let content = content.ok_or_else(|| {
        wrong(
            "content",
            &fields["content"],
            "text, or a list of text parts (this model reads text only)",
        )
    })?;
    fields.insert("content".into(), json!(content));
    read_arguments(&mut fields);
    Ok(Value::Object(fields))
}

fn text_of(part: &Value) -> Option<&str> {
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text" | "refusal") | None => part
            .as_str()
            .or_else(|| part.get("text").or_else(|| part.get("refusal"))?.as_str()),
        Some(_) => None,
    }
}

/// The API carries arguments as JSON text; templates print them as objects.
fn read_arguments(fields: &mut Map<String, Value>) {
    let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let Some(arguments) = call
            .get_mut("function")
            .and_then(|f| f.get_mut("arguments"))
        else {
            continue;
        };
        let read = arguments
            .as_str()
            .and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let Some(object @ Value::Object(_)) = read {
            *arguments = object;
        }
    }
}

/// A value for an error message: long content is not repeated in it.
fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "missing".into(),
        Value::Array(parts) => parts
            .iter()
            .find(|part| text_of(part).is_none())
            .and_then(|part| part.get("type")?.as_str())
            .map_or_else(
                || "a list".into(),
                |kind| format!("a part of type {kind:.40}"),
            ),
        Value::Object(_) => "an object".into(),
        Value::String(_) => "text".into(),
        other => other.to_string(),
    }
}
