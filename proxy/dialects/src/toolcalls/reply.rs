//! Extracts calls and thinking from an unstreamed chat reply.

use serde_json::Value;

use super::{
    call::finish_with_calls,
    markup::{THINK, THINK_END},
    options::ToolCallOptions,
    split::{SplitPiece, Splitter},
};
use crate::json;

/// Extracts calls and thinking from the text of an unstreamed chat reply. Returns `None` if there are none.
///
/// In an unstreamed reply the end is known. So text before a lone `</think>` on a separate line is thinking, even if no
/// option says that the template opens it.
pub fn reply(options: &ToolCallOptions, body: &[u8]) -> Option<Vec<u8>> {
    let mut body = json::read_bytes(body).ok()?;
    let reply_id = body["id"].as_str().unwrap_or_default().to_owned();
    let choices = body.get_mut("choices")?.as_array_mut()?;
    let mut has_changed = false;
    for choice in choices {
        has_changed |= recover(options, &reply_id, choice).is_some();
    }
    has_changed.then(|| body.to_string().into_bytes())
}

fn recover(options: &ToolCallOptions, reply_id: &str, choice: &mut Value) -> Option<()> {
    let message = choice.get_mut("message")?;
    let text = message["content"].as_str()?.to_owned();
    let think_is_open = options.think_is_open || ends_open_thinking(&text);
    let options = ToolCallOptions {
        think_is_open,
        ..options.clone()
    };
    let mut splitter = Splitter::new(options, reply_id);
    let mut pieces = Vec::new();
    splitter.leave(message, &mut pieces);
    splitter.push(&text, &mut pieces);
    splitter.finish(true, &mut pieces);
    let (mut content, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in pieces {
        match piece {
            SplitPiece::Text(text) => content.push_str(&text),
            SplitPiece::Thinking(text) => thinking.push_str(&text),
            SplitPiece::Call(call) => calls.push(Value::from(call)),
        }
    }
    if content == text {
        return None;
    }
    let message = message.as_object_mut()?;
    let has_found = !calls.is_empty();
    let content = if content.is_empty() && has_found {
        Value::Null
    } else {
        content.into()
    };
    message.insert("content".into(), content);
    if !thinking.is_empty() {
        message.insert("reasoning_content".into(), thinking.into());
    }
    if has_found {
        message.insert("tool_calls".into(), calls.into());
        finish_with_calls(choice);
    }
    Some(())
}

/// Returns whether a `</think>` is on a separate line without a `<think>` before it.
pub(super) fn ends_open_thinking(text: &str) -> bool {
    let Some((before, after)) = text.split_once(THINK_END) else {
        return false;
    };
    let before = before.trim_end_matches([' ', '\t']);
    let is_line = (before.is_empty() || before.ends_with('\n'))
        && (after.is_empty() || after.starts_with(['\n', '\r']));
    is_line && !before.contains(THINK)
}
