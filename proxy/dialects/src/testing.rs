//! What the tests of all three APIs share.

use std::{fs, path::Path};

use metaclaw_chat::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Reply;

/// The rows of `testdata/tables/NAME.json`.
pub(crate) fn rows<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tables");
    let rows = fs::read(folder.join(format!("{name}.json"))).unwrap();
    serde_json::from_slice(&rows).unwrap()
}

pub(crate) fn shown(reply: &Reply) -> String {
    let usage = reply.usage.map(|usage| {
        let (prompt, cached) = (usage.prompt_tokens, usage.cached_tokens);
        format!("{prompt} ({cached} cached) + {}", usage.completion_tokens)
    });
    let head = json!({
        "id": reply.id, "model": reply.model, "finish_reason": reply.finish_reason,
        "usage": usage, "ended": reply.ended, "error": reply.error, "n_skipped": reply.n_skipped,
    });
    let message = reply.message.clone().map(Value::from).unwrap_or_default();
    format!("{head}\n{message}")
}

pub(crate) fn lines(messages: &[Message]) -> String {
    let line = |message: &Message| Value::from(message.clone()).to_string();
    messages.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|at| at % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
}
