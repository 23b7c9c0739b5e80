//! Token counts of a reply in OpenAI's format.

use serde::Serialize;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ChatUsage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

// === impl ChatUsage ===

impl ChatUsage {
    pub(crate) fn new(n_prompt: usize, n_generated: usize, n_cached: usize) -> Self {
        Self {
            prompt_tokens: n_prompt,
            completion_tokens: n_generated,
            total_tokens: n_prompt + n_generated,
            prompt_tokens_details: PromptDetails {
                cached_tokens: n_cached,
            },
        }
    }

    /// Adds another choice. The prompt counts once.
    pub(crate) fn and(self, other: Self) -> Self {
        let n_generated = self.completion_tokens + other.completion_tokens;
        let n_cached = self.prompt_tokens_details.cached_tokens;
        let n_cached = n_cached.min(other.prompt_tokens_details.cached_tokens);
        Self::new(self.prompt_tokens, n_generated, n_cached)
    }
}
