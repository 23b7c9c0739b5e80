//! Token counts of a completion.

use metaclaw_chat::Usage;
use serde_json::Value;

use crate::fields::JsonFields;

/// Reads the `usage` of a completion, a chunk or a choice.
pub(super) fn usage(of: &JsonFields<'_>) -> Option<Usage> {
    let usage = of.value("usage").filter(Value::is_object)?;
    let number = |name| Usage::count(&usage[name]);
    Some(Usage {
        prompt_tokens: number("prompt_tokens"),
        completion_tokens: number("completion_tokens"),
        cached_tokens: cached_tokens(&usage),
    })
}

/// Returns the number of cached prompt tokens in a `usage`, by OpenAI's, DeepSeek's or Moonshot's name.
pub(crate) fn cached_tokens(usage: &Value) -> u64 {
    let counts = [
        &usage["prompt_tokens_details"]["cached_tokens"],
        &usage["prompt_cache_hit_tokens"],
        &usage["cached_tokens"],
    ];
    counts.into_iter().map(Usage::count).max().unwrap_or(0)
}
