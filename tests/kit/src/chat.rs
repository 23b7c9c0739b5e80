//! Chat completions in OpenAI's form.

use serde_json::{Value, json};

/// A whole reply with this message.
pub fn completion(message: &Value) -> Value {
    let calls = message["tool_calls"].is_array();
    let choice = json!({"index": 0, "message": message,
        "finish_reason": if calls { "tool_calls" } else { "stop" }});
    json!({"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}})
}

/// A whole reply that says this.
pub fn says(text: &str) -> Value {
    completion(&json!({"role": "assistant", "content": text}))
}

/// One event of a stream.
pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A streamed reply that says this, an event a word.
pub fn stream(text: &str) -> Vec<String> {
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        event(&json!({"id": "chatcmpl-1", "choices": [choice]}))
    };
    let words = text.split_inclusive(' ');
    let mut events: Vec<_> = words
        .map(|it| chunk(json!({ "content": it }), None))
        .collect();
    events.extend([
        chunk(json!({}), Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ]);
    events
}
