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
    let blocks = content.list()?.iter();
    let blocks = blocks.filter(|block| {
        block["type"]
            .as_str()
            .is_none_or(|it| SAYABLE.contains(&it))
    });
    let mut message = assistant(&content.with(&blocks.cloned().collect()))?;
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let name = &mut call["function"]["name"];
        *name = context
            .tools
            .given(name.as_str().unwrap_or_default())
            .into();
    }
    let mut finish_reason = usage::finish_reason(&body["stop_reason"]);
    let mut stops = context.stops.clone();
    if let Some(text) = message["content"].as_str() {
        let said = stops.feed(text) + &stops.flush();
        if stops.met().is_some() {
            message["content"] = said.into();
            finish_reason = "stop";
            message
                .as_object_mut()
                .map(|message| message.shift_remove("tool_calls"));
        }
    }
    let signed = content.list()?.iter().filter(|block| is_signed(block));
    let signed: Vec<Value> = signed.cloned().collect();
    if !signed.is_empty() {
        message["thinking_blocks"] = signed.into();
    }
    message["refusal"] = Value::Null;
    Ok(json!({
        "id": id(context, body),
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

/// Returns the upstream's own id, so that the logs of both sides name the same reply.
pub(super) fn id(context: &ReplyContext, message: &Value) -> String {
    let id = filled(&message["id"]).map(str::to_owned);
    id.unwrap_or_else(|| format!("chatcmpl-{}", context.created))
}
