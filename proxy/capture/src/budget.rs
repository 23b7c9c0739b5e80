//! A memory budget in bytes that several holders share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A limit on the bytes that all holders have together: captures, or request bodies. Clones share the limit.
#[derive(Debug, Clone)]
pub struct Budget {
    pub(crate) limit: u64,
    used: Arc<Counter>,
}

/// A part of a budget. Dropping it gives the bytes back.
#[derive(Debug)]
pub struct Held {
    n_bytes: u64,
    budget: Budget,
}

// === impl Budget ===

impl Budget {
    /// Makes a budget of `limit` bytes. `used` counts the bytes that are held.
    pub fn new(limit: u64, used: Arc<Counter>) -> Self {
        Self { limit, used }
    }

    /// Returns a part of zero bytes.
    pub fn nothing(&self) -> Held {
        Held {
            n_bytes: 0,
            budget: self.clone(),
        }
    }

    /// Takes `n_bytes` if they are available. If two callers ask at once, both may be refused although there was room
    /// for one. The limit is never exceeded.
    pub fn hold(&self, n_bytes: usize) -> Option<Held> {
        let mut held = self.nothing();
        held.grow(n_bytes as u64).then_some(held)
    }
}

// === impl Held ===

impl Held {
    /// Takes `more` bytes if they are available, and returns whether they were.
    pub fn grow(&mut self, more: u64) -> bool {
        let Budget { limit, used } = &self.budget;
        used.add(more);
        let fits = used.get() <= *limit;
        if fits {
            self.n_bytes += more;
        } else {
            used.sub(more);
        }
        fits
    }

    /// Sets the held bytes to `n_bytes` even if the limit is exceeded, because the memory is already in use.
    pub fn set(&mut self, n_bytes: u64) {
        let used = &self.budget.used;
        match n_bytes.checked_sub(self.n_bytes) {
            Some(more) => used.add(more),
            None => used.sub(self.n_bytes - n_bytes),
        }
        self.n_bytes = n_bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

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
