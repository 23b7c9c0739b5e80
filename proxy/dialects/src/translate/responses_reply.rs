//! Converts an unstreamed chat completion to a response.

use serde_json::Value;

use super::{
    at::PathValue,
    chat_blocks::{Block, BlockWriter as _, Kind, ReplyEnd},
    context::ReplyContext,
    error::TranslateError,
    messages_reply::{content_text, reasoning},
    responses_stream::ResponsesWriter,
};
use crate::calls::arguments_text;

pub(super) fn reply(context: &ReplyContext, body: &Value) -> Result<Value, TranslateError> {
    let choice = &body["choices"][0];
    let message = PathValue::new("choices[0].message", &choice["message"]);
    message.object()?;
    let mut writer = ResponsesWriter::new(context);
    // Nobody reads the events.
    let out = &mut Vec::new();
    writer.begin(body, &Value::Null, out);
    if let Some(signed) = message["thinking_blocks"].as_array() {
        writer.sign(signed);
    }
    let mut say = |block: &Block, kind: Kind, text: &str| {
        if !text.is_empty() {
            writer.stop(out);
            writer.start(block, out);
            writer.grow(kind, text, out);
        }
    };
    say(
        &Block::Thinking,
        Kind::Thinking,
        &reasoning(&message).unwrap_or_default(),
    );
    let text = content_text(&message.field("content"))?;
    let refusal = message["refusal"].as_str().unwrap_or_default();
    say(&Block::Text, Kind::Text, &format!("{text}{refusal}"));
    let calls = message.field("tool_calls").list()?;
    let id = context.reply_id("", body);
    let mut known = context.calls.clone();
    for (n, call) in calls.iter().enumerate() {
        let id = known.id(&call["id"], &id, n);
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default().to_owned();
        let arguments = arguments_text(&function["arguments"]);
        say(&Block::Call { id, name }, Kind::Call, &arguments);
    }
    let end = ReplyEnd {
        finish_reason: choice["finish_reason"].as_str().unwrap_or_default(),
        matched: &Value::Null,
        has_calls: !calls.is_empty(),
        usage: &body["usage"],
    };
    Ok(writer.finish(&end, out))
}
