//! Converts an unstreamed chat completion to an Anthropic reply.

use metaclaw_chat::thinking;
use serde_json::{Value, json};

use super::{at::PathValue, context::ReplyContext, error::TranslateError, usage, wire::input};
use crate::chat::thought;

pub(super) fn reply(context: &ReplyContext, body: &Value) -> Result<Value, TranslateError> {
    let choice = &body["choices"][0];
    let message = PathValue::new("choices[0].message", &choice["message"]);
    message.object()?;
    let id = context.reply_id("msg_", body);
    let mut calls = calls(context, &id, &message)?;
    let mut text = content_text(&message.field("content"))?;
    let mut finish_reason = choice["finish_reason"].as_str().unwrap_or_default();
    let mut matched = choice["stop_reason"].clone();
    let mut stops = context.stops.clone();
    let said = stops.feed(&text) + &stops.flush();
    if let Some(stop) = &stops.met {
        matched = stop.as_str().into();
        text = said;
        calls.clear();
        finish_reason = "stop";
    }
    let has_calls = !calls.is_empty();
    let (stop_reason, stop_sequence) =
        usage::stop_reason(context, finish_reason, &matched, has_calls);
    Ok(json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": body["model"].as_str().unwrap_or_default(),
        "content": content(&message, &text, calls),
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage::to_messages(&body["usage"]),
    }))
}

fn content(message: &PathValue<'_>, text: &str, calls: Vec<Value>) -> Vec<Value> {
    let mut content = Vec::new();
    if let Some(thinking) = reasoning(message) {
        // Anthropic signs its thinking. Clients require the field, and only Anthropic can fill it.
        content.push(json!({ "type": "thinking", "thinking": thinking, "signature": "" }));
    }
    let texts = [Some(text), message["refusal"].as_str()];
    let texts = texts.into_iter().flatten().filter(|text| !text.is_empty());
    content.extend(texts.map(|text| json!({ "type": "text", "text": text })));
    content.extend(calls);
    content
}

/// Returns the thinking that chat servers separate from the reply. Mistral's is in the content.
pub(super) fn reasoning(message: &Value) -> Option<String> {
    let named = thinking(message).map(str::to_owned);
    let parts = message["content"].as_array().into_iter().flatten();
    let thought: String = parts.filter_map(thought).collect();
    named.or_else(|| Some(thought).filter(|thought| !thought.is_empty()))
}

pub(super) fn content_text(content: &PathValue<'_>) -> Result<String, TranslateError> {
    let Value::Array(parts) = content.value else {
        return Ok(content.texts()?.concat());
    };
    let said = parts.iter().filter(|part| thought(part).is_none());
    Ok(content.with(&said.cloned().collect()).texts()?.concat())
}

fn calls(
    context: &ReplyContext,
    reply_id: &str,
    message: &PathValue<'_>,
) -> Result<Vec<Value>, TranslateError> {
    let calls = message.field("tool_calls").list()?;
    let mut known = context.calls.clone();
    let call = |(n, call): (usize, &Value)| {
        let function = &call["function"];
        let input = match &function["arguments"] {
            Value::Object(input) => Value::Object(input.clone()),
            arguments => input(arguments.as_str().unwrap_or_default()),
        };
        let id = known.id(&call["id"], reply_id, n);
        let name = function["name"].as_str().unwrap_or_default();
        let name = context.tools.given(name);
        json!({ "type": "tool_use", "id": id, "name": name, "input": input })
    };
    Ok(calls.iter().enumerate().map(call).collect())
}
