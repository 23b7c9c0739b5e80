//! Claude Code's accounting line.
//!
//! Its first system block says how the request is accounted, with a part that differs in each request. It is only for
//! Anthropic. At the beginning of any other model's prompt it changes the prompt from its first tokens on, so no prefix
//! cache can be used.

use memchr::memmem;
use serde_json::Value;

const MARK: &str = "x-anthropic-billing-header:";

pub(super) fn without(text: &str) -> &str {
    let mut rest = text;
    while rest.trim_start().starts_with(MARK) {
        let line_end = rest.trim_start().split_once('\n');
        rest = line_end.map_or("", |(_, rest)| rest.trim_start_matches('\n'));
    }
    rest
}

/// Returns whether a request may contain an accounting line.
pub fn has_accounting(body: &[u8]) -> bool {
    memmem::find(body, MARK.as_bytes()).is_some()
}

/// Removes the accounting lines from the system prompt of a request of any API, for a server that is not Anthropic's.
/// Returns `None` if it has none.
pub fn strip_accounting(body: &[u8]) -> Option<Vec<u8>> {
    let mut body = crate::json::value(body)?;
    let mut is_changed = false;
    for name in ["system", "instructions"] {
        if let Some(system) = body.get_mut(name) {
            is_changed |= strip_content(system);
        }
    }
    for name in ["messages", "input"] {
        let messages = body.get_mut(name).and_then(Value::as_array_mut);
        for message in messages.into_iter().flatten() {
            let is_system = message["role"] == "system" || message["role"] == "developer";
            if let Some(content) = message.get_mut("content").filter(|_| is_system) {
                is_changed |= strip_content(content);
            }
        }
    }
    is_changed.then(|| body.to_string().into_bytes())
}

/// Returns whether anything was removed. A block with only the line is removed too.
fn strip_content(content: &mut Value) -> bool {
    match content {
        Value::String(text) => strip(text),
        Value::Array(blocks) => {
            let mut is_changed = false;
            blocks.retain_mut(|block| {
                let Some(Value::String(text)) = block.get_mut("text") else {
                    return true;
                };
                let is_marked = strip(text);
                is_changed |= is_marked;
                !(is_marked && text.is_empty())
            });
            is_changed
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn strip(text: &mut String) -> bool {
    let rest = without(text);
    let is_changed = rest.len() != text.len();
    if is_changed {
        *text = rest.to_owned();
    }
    is_changed
}
