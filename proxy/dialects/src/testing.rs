//! What the tests of all three APIs share.

use metaclaw_chat::Message;
use serde_json::{Value, json};

use crate::Reply;

/// A reply as text, for snapshots.
pub(crate) fn shown(reply: &Reply) -> String {
    let usage = reply.usage.map(|usage| {
        let cached = usage.cached_tokens;
        format!(
            "{} ({cached} cached) + {}",
            usage.prompt_tokens, usage.completion_tokens
        )
    });
    let head = json!({
        "id": reply.id, "model": reply.model, "finish_reason": reply.finish_reason,
        "usage": usage, "ended": reply.ended, "error": reply.error, "n_skipped": reply.n_skipped,
    });
    let message = reply.message.clone().map(Value::from).unwrap_or_default();
    format!("{head}\n{message:#}")
}

/// Messages as text, one a line.
pub(crate) fn lines(messages: &[Message]) -> String {
    let line = |message: &Message| Value::from(message.clone()).to_string();
    messages.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `bytes` in pieces, cut at any places.
pub(crate) fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|at| at % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
}
