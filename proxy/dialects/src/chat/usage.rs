//! What a completion cost.

use metaclaw_chat::Usage;

use crate::fields::Fields;

/// Reads the `usage` of a completion, a chunk or a choice.
pub(super) fn usage(of: &Fields<'_>) -> Option<Usage> {
    let usage = of.object("usage")?;
    let number = |name| usage.number(name).unwrap_or(0);
    Some(Usage {
        prompt_tokens: number("prompt_tokens"),
        completion_tokens: number("completion_tokens"),
        cached_tokens: cached_tokens(|path| usage.number_at(path)),
    })
}

/// How many of a `usage`'s prompt tokens a cache gave, by OpenAI's name, DeepSeek's or Moonshot's;
/// `count` finds a number by its path.
pub(crate) fn cached_tokens(count: impl Fn(&[&str]) -> Option<u64>) -> u64 {
    let paths: [&[&str]; 3] = [
        &["prompt_tokens_details", "cached_tokens"],
        &["prompt_cache_hit_tokens"],
        &["cached_tokens"],
    ];
    paths.into_iter().filter_map(count).max().unwrap_or(0)
}
