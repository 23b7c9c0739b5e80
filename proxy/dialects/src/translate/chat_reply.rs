//! An Anthropic reply, whole, as a chat completion.

use serde_json::{Value, json};

use super::{
    context::ReplyContext,
    error::TranslateError,
    error_reply,
    to_chat::Said,
    usage,
    wire::{filled, given, invalid},
};

pub(super) fn reply(context: &ReplyContext, body: &Value) -> Result<Value, TranslateError> {
    if body.get("error").and_then(given).is_some() {
        return Ok(error_reply::to_chat(body));
    }
    let Some(blocks) = body["content"].as_array() else {
        return Err(invalid("content", &body["content"], "a list of blocks"));
    };
    let mut said = Said::default();
    let mut signed = Vec::new();
    for (n, block) in blocks.iter().enumerate() {
        said.add(&format!("content[{n}]"), block)?;
        if is_signed(block) {
            signed.push(block.clone());
        }
    }
    let mut message = said.into_message();
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
    match filled(&message["id"]) {
        Some(id) => id.to_owned(),
        None => format!("chatcmpl-{}", context.created),
    }
}
