//! Counters of captures. Every way to lose a turn before it reaches the log has a counter.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A number that goes up, and in some uses also down.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// Counters since the start.
#[derive(Debug, Default)]
pub struct CaptureMetrics {
    /// Bytes that captures hold now.
    pub bytes: Arc<Counter>,
    /// Turns that the log has acknowledged.
    pub recorded: Counter,
    /// Turns that are not in the log because the queue was full.
    pub dropped: Counter,
    /// Turns that are not in the log because it failed.
    pub failed: Counter,
    /// Turns without their reply, because the capture's memory ran out or an event was too long to read.
    pub overflowed: Counter,
    /// Turns without their reply, because it was compressed in an unsupported or invalid way.
    pub undecodable: Counter,
    /// Tokens of prompts, cached ones included, as upstreams count them.
    pub prompt_tokens: Counter,
    /// Tokens of prompts that came from a provider's cache.
    pub cached_tokens: Counter,
    /// Turns that are not in the log because a number of the request fits in no `f64`.
    pub unreadable: Counter,
}

// === impl Counter ===

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts `n`, which was added before.
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub fn inc(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
