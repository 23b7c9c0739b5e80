//! An Anthropic reply, whole, as a chat completion.

use serde_json::{Value, json};

use super::{
    at::At,
    context::ReplyContext,
    error::TranslateError,
    error_reply,
    to_chat::assistant,
    usage,
    wire::{filled, given},
};

pub(super) fn reply(context: &ReplyContext, body: &Value) -> Result<Value, TranslateError> {
    if given(&body["error"]).is_some() {
        return Ok(error_reply::to_chat(body));
    }
    let content = At::top(body, "content");
    if !content.is_array() {
        return Err(content.invalid("a list of blocks"));
    }
    let mut message = assistant(&content)?;
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
            "finish_reason": usage::finish_reason(&body["stop_reason"]),
        }],
        "usage": usage::to_chat(&body["usage"]),
    }))
}

/// A block that Anthropic wants back as it is before it goes on with its tools.
pub(super) fn is_signed(block: &Value) -> bool {
    block["type"] == "redacted_thinking" || filled(&block["signature"]).is_some()
}

/// The upstream's own id, so that both sides' logs speak of the same reply.
pub(super) fn id(context: &ReplyContext, message: &Value) -> String {
    let id = filled(&message["id"]).map(str::to_owned);
    id.unwrap_or_else(|| format!("chatcmpl-{}", context.created))
}
