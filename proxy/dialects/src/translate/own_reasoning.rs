//! Thinking of a chat completion in the form of Responses.
//!
//! In Responses, `encrypted_content` has what only the provider can read, and clients send it back unchanged. Here it
//! contains the blocks that Anthropic signed, unencrypted and after our mark. By the mark we recognise them, and keep
//! them from providers that would refuse another provider's item.

use memchr::memmem;
use serde_json::{Value, json};

const MARK: &str = "metaclaw:";

pub(super) fn sealed(signed: &[Value]) -> Value {
    format!("{MARK}{}", json!(signed)).into()
}

/// Returns the signed blocks of a reasoning item, if it is one of ours.
pub(super) fn signed(item: &Value) -> Vec<Value> {
    let blocks = own(item).map(serde_json::from_str);
    blocks.and_then(Result::ok).unwrap_or_default()
}

fn own(item: &Value) -> Option<&str> {
    item["encrypted_content"].as_str()?.strip_prefix(MARK)
}

/// Returns whether a request may contain reasoning items of ours.
pub fn has_own_reasoning(body: &[u8]) -> bool {
    memmem::find(body, MARK.as_bytes()).is_some()
}

/// Removes our reasoning items from a request in Responses, or returns `None` if it has none.
pub fn strip_own_reasoning(body: &[u8]) -> Option<Vec<u8>> {
    let mut body = crate::json::value(body)?;
    let input = body.get_mut("input")?.as_array_mut()?;
    let n_items = input.len();
    input.retain(|item| own(item).is_none());
    let is_changed = input.len() < n_items;
    is_changed.then(|| body.to_string().into_bytes())
}
