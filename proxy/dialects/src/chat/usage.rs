//! Token counts of a completion.

use metaclaw_chat::Usage;
use serde_json::Value;

use crate::{fields::JsonFields, words::count};

/// Reads the `usage` of a completion, a chunk or a choice.
pub(super) fn usage(of: &JsonFields<'_>) -> Option<Usage> {
    let usage = of.value("usage").filter(Value::is_object)?;
    let number = |kind| Usage::count(&count(&usage, kind).into());
    Some(Usage {
        prompt_tokens: number("prompt"),
        completion_tokens: number("completion"),
        cached_tokens: number("cached"),
    })
}
