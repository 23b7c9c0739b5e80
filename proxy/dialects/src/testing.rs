//! What the tests of all three APIs share.

use metaclaw_chat::Message;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value, json};

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

/// Values of the shapes and names that the three APIs have, in all the wrong places.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let texts = select(vec![
        "",
        "a",
        "text",
        "assistant",
        "user",
        "message",
        "function_call",
        "tool_use",
        "tool_result",
        "thinking",
        "image",
        "base64",
        "response.completed",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.prop_map(Value::from),
    ];
    let names = select(vec![
        "type",
        "role",
        "content",
        "text",
        "index",
        "delta",
        "usage",
        "message",
        "content_block",
        "input",
        "source",
        "data",
        "item",
        "output",
        "response",
        "output_index",
        "content_index",
        "arguments",
        "summary",
        "name",
        "call_id",
        "partial_json",
        "choices",
        "tool_calls",
        "function",
        "error",
        "input_tokens",
        "logprobs",
        "token_ids",
        "prompt_token_ids",
    ]);
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((names.clone(), inner), 0..6).prop_map(|fields| {
                fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<Map<_, _>>()
                    .into()
            }),
        ]
    })
}
