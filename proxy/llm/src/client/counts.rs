//! How often a model was asked, and what that cost.

use std::sync::atomic::{AtomicU64, Ordering};

use metaclaw_chat::Usage;

/// How often a model was asked since the start. What is tried again counts again, as it is paid again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskCounts {
    /// Requests that were sent.
    pub requests: u64,
    /// Of those, the ones that brought no answer.
    pub failures: u64,
    /// Tokens of questions, as far as the server told.
    pub prompt_tokens: u64,
    /// Tokens of answers, as far as the server told.
    pub completion_tokens: u64,
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

// === impl Counters ===

impl Counters {
    /// A request has ended without an answer.
    pub(super) fn failed(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was answered.
    pub(super) fn answered(&self, usage: Option<&Usage>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(usage) = usage {
            let (prompt, completion) = (usage.prompt_tokens, usage.completion_tokens);
            self.prompt_tokens.fetch_add(prompt, Ordering::Relaxed);
            self.completion_tokens
                .fetch_add(completion, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> AskCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AskCounts {
            requests: get(&self.requests),
            failures: get(&self.failures),
            prompt_tokens: get(&self.prompt_tokens),
            completion_tokens: get(&self.completion_tokens),
        }
    }
}
