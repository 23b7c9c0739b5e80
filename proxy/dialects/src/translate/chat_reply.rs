//! Converts an unstreamed Anthropic reply to a chat completion.

use serde_json::{Value, json};

use super::{
    at::PathValue, context::ReplyContext, error::TranslateError, to_chat::assistant, usage,
    wire::filled,
};

/// The blocks that chat completions can express. Blocks of the provider's own tools are left out, as in a stream.
const SAYABLE: [&str; 4] = ["text", "thinking", "redacted_thinking", "tool_use"];

pub(super) fn reply(context: &ReplyContext, body: &Value) -> Result<Value, TranslateError> {
    let content = PathValue::top(body, "content");
    if !content.is_array() {
        return Err(content.invalid("a list of blocks"));
    }
    let blocks = content.list()?.iter().filter(|block| {
        block["type"]
            .as_str()
            .is_none_or(|word| SAYABLE.contains(&word))
    });
    let mut message = assistant(&content.with(&blocks.cloned().collect()))?;
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    let id = context.reply_id("chatcmpl-", body);
    let mut known = context.calls.clone();
    for (n, call) in calls.into_iter().flatten().enumerate() {
        call["id"] = known.id(&call["id"], &id, n).into();
        let name = &mut call["function"]["name"];
        *name = context
            .tools
            .given(name.as_str().unwrap_or_default())
            .into();
    }
    let mut stops = context.stops.clone();
    if let Some(text) = message["content"].as_str() {
        let said = stops.feed(text) + &stops.flush();
        if stops.met.is_some() {
            message["content"] = said.into();
            message
                .as_object_mut()
                .map(|message| message.shift_remove("tool_calls"));
        }
    }
    let stop_reason = body["stop_reason"].as_str().filter(|_| stops.met.is_none());
    let has_calls = message.get("tool_calls").is_some();
    let finish_reason = usage::finish_reason(stop_reason.unwrap_or_default(), has_calls);
    let signed = content.list()?.iter().filter(|block| is_signed(block));
    let signed: Vec<Value> = signed.cloned().collect();
    if !signed.is_empty() {
        message["thinking_blocks"] = signed.into();
    }
    message["refusal"] = Value::Null;
    Ok(json!({
        "id": id,
        "object": "chat.completion",
        "created": context.created,
        "model": body["model"].as_str().unwrap_or_default(),
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason,
        }],
        "usage": usage::to_chat(&body["usage"]),
    }))
}

/// Returns whether Anthropic requires the block back unchanged before it continues with its tools.
pub(super) fn is_signed(block: &Value) -> bool {
    block["type"] == "redacted_thinking" || filled(&block["signature"]).is_some()
}
