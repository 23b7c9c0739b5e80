//! What a message cost, and why it ended.

use metaclaw_chat::Usage;
use serde_json::Value;

/// A `stop_reason` in OpenAI's words.
pub(super) fn finish_reason(reason: &str) -> String {
    let reason = match reason {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        // `pause_turn`: the provider's own tools are not done, and the client goes on by itself.
        other => other,
    };
    reason.to_owned()
}

/// What a message cost, as its events count it: each count is that of the whole message so far.
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
    /// Takes a `usage` object; a count that it leaves out, or sets back, stands as it was.
    pub(super) fn count(&mut self, usage: &Value) {
        self.is_known |= usage.is_object();
        let take = |known: &mut u64, name: &str| {
            *known = (*known).max(usage[name].as_u64().unwrap_or(0));
        };
        take(&mut self.input, "input_tokens");
        take(&mut self.written, "cache_creation_input_tokens");
        take(&mut self.cached, "cache_read_input_tokens");
        take(&mut self.output, "output_tokens");
    }

    /// Anthropic counts what is written to its cache, and read from it, beside the input.
    pub(super) fn usage(&self) -> Option<Usage> {
        let prompt = self.input.saturating_add(self.written);
        self.is_known.then_some(Usage {
            prompt_tokens: prompt.saturating_add(self.cached),
            completion_tokens: self.output,
            cached_tokens: self.cached,
        })
    }
}
