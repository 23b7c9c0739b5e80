//! Reasoning that comes from a chat completion, as Responses has it.
//!
//! Responses keeps what only the provider can read in `encrypted_content`, and clients give it back as it came.
//! There stand the blocks that Anthropic signed, in the clear and behind a mark of ours: by the mark we know them
//! again, and keep them from providers that would refuse an item which they did not make.

use memchr::memmem;
use serde_json::{Value, json};

const MARK: &str = "metaclaw:";

/// A reasoning item's `encrypted_content`.
pub(super) fn sealed(signed: &[Value]) -> Value {
    format!("{MARK}{}", json!(signed)).into()
}

/// The signed blocks of a reasoning item, where it is one of ours.
pub(super) fn signed(item: &Value) -> Vec<Value> {
    let blocks = own(item).map(serde_json::from_str);
    blocks.and_then(Result::ok).unwrap_or_default()
}

fn own(item: &Value) -> Option<&str> {
    item["encrypted_content"].as_str()?.strip_prefix(MARK)
}

/// Whether a request may hold reasoning items of ours.
pub fn has_own_reasoning(body: &[u8]) -> bool {
    memmem::find(body, MARK.as_bytes()).is_some()
}

/// A request of Responses without the reasoning items that are ours; `None` where it has none.
pub fn strip_own_reasoning(body: &[u8]) -> Option<Vec<u8>> {
    let mut body = crate::json::value(body)?;
    let input = body.get_mut("input")?.as_array_mut()?;
    let n_items = input.len();
    input.retain(|item| own(item).is_none());
    let is_changed = input.len() < n_items;
    is_changed.then(|| body.to_string().into_bytes())
}
