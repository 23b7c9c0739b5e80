//! How a response ended.

use metaclaw_chat::Message;
use serde_json::Value;

/// Returns whether the model is done, so that even an empty reply is a reply.
pub(super) fn is_over(status: &str) -> bool {
    matches!(status, "completed" | "incomplete")
}

pub(super) fn finish_reason(
    status: &str,
    response: &Value,
    message: Option<&Message>,
) -> Option<String> {
    let calls = message.is_some_and(|message| message.get("tool_calls").is_some());
    let reason = match status {
        "completed" if calls => "tool_calls",
        "completed" => "stop",
        "incomplete" => {
            let reason = response["incomplete_details"]["reason"].as_str();
            return Some(metaclaw_chat::finish_reason(reason.unwrap_or(status)));
        }
        "cancelled" => "cancelled",
        // It failed, or runs in the background, and nothing has stopped it yet.
        _ => return None,
    };
    Some(reason.to_owned())
}
