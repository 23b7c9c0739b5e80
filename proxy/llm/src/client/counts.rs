//! Number of requests to a model, and their tokens.

use std::{
    iter::Sum,
    sync::atomic::{AtomicU64, Ordering},
};

use metaclaw_chat::Usage;

/// Requests to a model since the start. A repeated request counts again, because it is also paid again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskCounts {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests without an answer, among these.
    pub failures: u64,
    /// Tokens of prompts, as far as the server reported them.
    pub prompt_tokens: u64,
    /// Tokens of answers, as far as the server reported them.
    pub completion_tokens: u64,
}

/// The counters behind [`AskCounts`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

// === impl AskCounts ===

impl Sum for AskCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |all, it| Self {
            requests: all.requests + it.requests,
            failures: all.failures + it.failures,
            prompt_tokens: all.prompt_tokens + it.prompt_tokens,
            completion_tokens: all.completion_tokens + it.completion_tokens,
        })
    }
}

// === impl Counters ===

impl Counters {
    /// Counts a request that ended without an answer.
    pub(super) fn failed(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answered request.
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
