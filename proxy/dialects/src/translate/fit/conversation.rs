//! Changes the conversation so that Anthropic accepts it: each message is `{role, content: [blocks]}`, and the roles
//! alternate.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::translate::content::as_text;

const BEGINNING: &str = "(The conversation begins with the assistant.)";
const CONTINUE: &str = "Continue.";
const NO_RESULT: &str = "(no result)";

/// Gives every call a unique id, and one result in the message after it. A result without such a call becomes text.
pub(crate) fn pair_results(messages: &mut Vec<Value>) {
    let mut seen = HashSet::new();
    // The calls of the previous message: their original ids, and the present ones.
    let mut open: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        let is_user = messages[at]["role"] == "user";
        if !is_user && !open.is_empty() {
            messages.insert(at, json!({ "role": "user", "content": [] }));
            continue;
        }
        if let Value::Array(content) = &mut messages[at]["content"] {
            if is_user {
                *content = results(std::mem::take(content), std::mem::take(&mut open));
            } else {
                open = calls(content, &mut seen);
            }
        }
        at += 1;
    }
    if !open.is_empty() {
        let content = results(Vec::new(), open);
        messages.push(json!({ "role": "user", "content": content }));
    }
}

/// Returns the calls of a message, and renames those whose id occurred before.
fn calls(content: &mut [Value], seen: &mut HashSet<String>) -> Vec<(String, String)> {
    let calls = content.iter_mut().filter(|it| it["type"] == "tool_use");
    let rename = |call: &mut Value| {
        let given = call["id"].as_str().unwrap_or_default().to_owned();
        let mut id = given.clone();
        let mut n = 2;
        while id.is_empty() || !seen.insert(id.clone()) {
            id = format!("{given}_{n}");
            n += 1;
        }
        call["id"] = id.clone().into();
        (given, id)
    };
    calls.map(rename).collect()
}

fn results(content: Vec<Value>, mut open: Vec<(String, String)>) -> Vec<Value> {
    let (mut results, mut rest) = (Vec::new(), Vec::new());
    for mut block in content {
        if block["type"] != "tool_result" {
            rest.push(block);
            continue;
        }
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        match open.iter().position(|(given, _)| given == id) {
            Some(at) => {
                block["tool_use_id"] = open.remove(at).1.into();
                results.push(block);
            }
            None => rest.push(json!({ "type": "text", "text": as_text(&block) })),
        }
    }
    let missing = open
        .into_iter()
        .map(|(_, id)| json!({ "type": "tool_result", "tool_use_id": id, "content": NO_RESULT }));
    results.into_iter().chain(missing).chain(rest).collect()
}

pub(super) fn begin_with_user(messages: &mut Vec<Value>) {
    if messages
        .first()
        .is_some_and(|first| first["role"] != "user")
    {
        messages.insert(0, user(BEGINNING));
    }
}

/// Changes a last message of the assistant, which would be continued: it may not end in white space, and some models
/// accept none.
pub(super) fn end(messages: &mut Vec<Value>, takes_prefill: bool) {
    let Some(last) = messages.last_mut().filter(|it| it["role"] == "assistant") else {
        return;
    };
    if !takes_prefill {
        messages.push(user(CONTINUE));
        return;
    }
    let Value::Array(content) = &mut last["content"] else {
        return;
    };
    if let Some(Value::String(text)) = content.last_mut().and_then(|block| block.get_mut("text")) {
        text.truncate(text.trim_end().len());
    }
    // Thinking cannot be continued.
    let can_end = content.last().is_some_and(|block| block["type"] == "text");
    if !can_end {
        messages.push(user(CONTINUE));
    }
}

pub(super) fn is_mid_call_without_thinking(messages: &[Value]) -> bool {
    first_reply_under_way(messages).is_some_and(|at| {
        let kind = &messages[at]["content"][0]["type"];
        *kind != "thinking" && *kind != "redacted_thinking"
    })
}

/// Returns where a reply that waits for results began: at the first reply after the user's last message. Replies after
/// further results may come without thinking.
pub(crate) fn first_reply_under_way(messages: &[Value]) -> Option<usize> {
    let has = |message: &Value, kind: &str| {
        let blocks = message["content"].as_array().into_iter().flatten();
        blocks.into_iter().any(|block| block["type"] == kind)
    };
    let is_result = |message: &Value| message["role"] == "user" && has(message, "tool_result");
    if !messages.last().is_some_and(is_result) {
        return None;
    }
    let is_said = |message: &Value| message["role"] == "user" && !is_result(message);
    let after = messages.iter().rposition(is_said).map_or(0, |at| at + 1);
    let replies = messages[after..].iter();
    let at = replies
        .clone()
        .position(|message| message["role"] == "assistant")?;
    Some(after + at)
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "type": "text", "text": text }] })
}
