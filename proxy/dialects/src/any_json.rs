//! JSON for property tests.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value};

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
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
