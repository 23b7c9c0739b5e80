//! Completes a request in Responses that continues a reply by its id, with the earlier conversation.
//!
//! Only the provider of that reply has the conversation, and our log.

use metaclaw_chat::Message;
use serde_json::{Value, json};

/// Puts a conversation before a request's input: the messages in chat form, with the reply as the last one.
///
/// The `instructions` of an earlier request are left out, as OpenAI does.
pub fn go_on(request: &mut Value, conversation: &[Message]) {
    let mut input = Vec::new();
    for (n, message) in conversation.iter().enumerate() {
        let is_instructions = n == 0 && message.get("role").is_some_and(|role| role == "system");
        if !is_instructions {
            items(message, &mut input);
        }
    }
    match request["input"].take() {
        Value::Array(mut more) => input.append(&mut more),
        Value::Null => {}
        text => input.push(json!({ "role": "user", "content": text })),
    }
    request["input"] = input.into();
}

fn items(message: &Message, out: &mut Vec<Value>) {
    let field = |name: &str| message.get(name).unwrap_or(&Value::Null);
    let role = field("role").as_str().unwrap_or_default();
    if role == "tool" {
        out.push(json!({
            "type": "function_call_output",
            "call_id": field("tool_call_id"),
            "output": parts(field("content"), "input_text"),
        }));
        return;
    }
    let is_models = role == "assistant";
    if let Some(text) = field("reasoning_content").as_str().filter(|_| is_models) {
        let summary = json!([{ "type": "summary_text", "text": text }]);
        out.push(json!({ "type": "reasoning", "summary": summary }));
    }
    let text = if is_models {
        "output_text"
    } else {
        "input_text"
    };
    let content = parts(field("content"), text);
    if !content.is_null() && content != "" {
        out.push(json!({ "type": "message", "role": role, "content": content }));
    }
    for call in field("tool_calls").as_array().into_iter().flatten() {
        let custom = &call["custom"];
        out.push(if custom.is_object() {
            json!({ "type": "custom_tool_call", "call_id": call["id"], "name": custom["name"], "input": custom["input"] })
        } else {
            let function = &call["function"];
            json!({ "type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": function["arguments"] })
        });
    }
}

/// Converts a message's content to Responses parts. Text parts get the type `text_type`; a plain string stays.
fn parts(content: &Value, text_type: &str) -> Value {
    let Value::Array(parts) = content else {
        return content.clone();
    };
    let part = |part: &Value| match part["type"].as_str() {
        Some("text") => json!({ "type": text_type, "text": part["text"] }),
        Some("image_url") => {
            let image = &part["image_url"];
            json!({ "type": "input_image", "image_url": image["url"], "detail": image["detail"] })
        }
        Some("file") => {
            let file = &part["file"];
            json!({ "type": "input_file", "filename": file["filename"], "file_data": file["file_data"], "file_id": file["file_id"], "file_url": file["file_url"] })
        }
        _ => part.clone(),
    };
    parts.iter().map(part).collect()
}
