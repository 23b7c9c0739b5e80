//! Converts a chat completion between its two forms: an unstreamed one to a stream, and a stream to an unstreamed one.
//!
//! Some servers answer a request for a stream with one body, and others always stream. If a reply is translated anyway,
//! the caller gets the form that it requested.

use serde_json::{Map, Value, json};

use super::stream::ChatAccumulator;
use crate::{json, reply::read_sse, sse::SseReader};

/// Returns the events of a stream for an unstreamed completion, or `None` if it is not one.
pub fn as_events(body: &[u8]) -> Option<Vec<u8>> {
    let mut chunk = json::value(body)?;
    for choice in chunk.get_mut("choices")?.as_array_mut()? {
        let choice = choice.as_object_mut()?;
        let mut delta = choice.shift_remove("message")?;
        let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (n, call) in calls.into_iter().flatten().enumerate() {
            if let Some(call) = call.as_object_mut() {
                call.insert("index".to_owned(), n.into());
            }
        }
        choice.insert("delta".to_owned(), delta);
    }
    chunk["object"] = "chat.completion.chunk".into();
    Some(format!("data: {chunk}\n\ndata: [DONE]\n\n").into_bytes())
}

/// Returns the completion that a stream makes. An error in it, or a missing end, gives an error's body.
pub fn as_whole(events: &[u8]) -> Vec<u8> {
    let reply = read_sse::<ChatAccumulator>([events]);
    let error = |error: Value| json!({ "error": error }).to_string().into_bytes();
    if let Some(given) = reply.error {
        return error(given);
    }
    let broken = "the upstream's reply broke off before its end";
    let Some(message) = reply
        .message
        .filter(|_| reply.ended || reply.finish_reason.is_some())
    else {
        return error(json!({ "message": broken, "type": "server_error", "code": 502 }));
    };
    let mut whole = last_words(events);
    let stop_reason = whole.shift_remove("stop_reason").unwrap_or_default();
    let choice = json!({
        "index": 0,
        "message": Value::from(message),
        "finish_reason": reply.finish_reason,
        "stop_reason": stop_reason,
    });
    whole.insert("id".to_owned(), reply.id.into());
    whole.insert("model".to_owned(), reply.model.into());
    whole.insert("object".to_owned(), "chat.completion".into());
    whole.insert("choices".to_owned(), json!([choice]));
    Value::Object(whole).to_string().into_bytes()
}

/// Returns whether a body is a stream, whatever its header says.
pub fn is_events(body: &[u8]) -> bool {
    let body = body.trim_ascii_start();
    let fields = ["data:", "event:", "id:", ":"];
    fields
        .iter()
        .any(|field| body.starts_with(field.as_bytes()))
}

/// Returns fields that are valid only in the last event that has them: the usage, the creation time, vLLM's stop text.
fn last_words(events: &[u8]) -> Map<String, Value> {
    let mut words = Map::new();
    let mut reader = SseReader::new();
    for event in reader.feed(events) {
        let Ok(mut chunk) = json::read::<Value>(&event.data) else {
            continue;
        };
        for name in ["created", "usage"] {
            if let Some(value) = chunk.get_mut(name).filter(|value| !value.is_null()) {
                words.insert(name.to_owned(), value.take());
            }
        }
        let stop = &chunk["choices"][0]["stop_reason"];
        if !stop.is_null() {
            words.insert("stop_reason".to_owned(), stop.clone());
        }
    }
    words
}
