//! Token counts of a message, and why it ended.

use metaclaw_chat::Usage;
use serde_json::Value;

/// A message's token counts. Each event's count is that of the whole message so far.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    is_known: bool,
    input: u64,
    written: u64,
    cached: u64,
    output: u64,
}

// === impl Tokens ===

impl Tokens {
    /// Adds a `usage` object. A count that it leaves out, or lowers, keeps its value.
    pub(super) fn count(&mut self, usage: &Value) {
        self.is_known |= usage.is_object();
        let take = |known: &mut u64, name: &str| {
            *known = (*known).max(Usage::count(&usage[name]));
        };
        take(&mut self.input, "input_tokens");
        take(&mut self.written, "cache_creation_input_tokens");
        take(&mut self.cached, "cache_read_input_tokens");
        take(&mut self.output, "output_tokens");
    }

    /// Anthropic counts tokens written to its cache, and read from it, separately from the input.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.is_known.then_some(Usage {
            prompt_tokens: self.input + self.written + self.cached,
            completion_tokens: self.output,
            cached_tokens: self.cached,
        })
    }
}
