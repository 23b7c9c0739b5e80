//! Counts the tokens that the server processed, as its provider counts them.

use std::sync::atomic::{AtomicU64, Ordering};

/// The tokens since the process began. All counts only grow.
#[derive(Debug, Default)]
pub struct TinkerUsage {
    trained: AtomicU64,
    read: AtomicU64,
    sampled: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TinkerTokens {
    /// Tokens that went through forward or forward_backward.
    pub trained: u64,
    /// Tokens of prompts that were sampled from or scored.
    pub read: u64,
    pub sampled: u64,
}

// === impl TinkerUsage ===

impl TinkerUsage {
    /// Returns the present counts.
    pub fn now(&self) -> TinkerTokens {
        TinkerTokens {
            trained: self.trained.load(Ordering::Relaxed),
            read: self.read.load(Ordering::Relaxed),
            sampled: self.sampled.load(Ordering::Relaxed),
        }
    }

    pub(super) fn trained(&self, n: usize) {
        self.trained.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn drawn(&self, n_read: usize, n_sampled: usize) {
        self.read.fetch_add(n_read as u64, Ordering::Relaxed);
        self.sampled.fetch_add(n_sampled as u64, Ordering::Relaxed);
    }
}

// === impl TinkerTokens ===

impl std::ops::Sub for TinkerTokens {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            trained: self.trained.saturating_sub(before.trained),
            read: self.read.saturating_sub(before.read),
            sampled: self.sampled.saturating_sub(before.sampled),
        }
    }
}

impl std::ops::AddAssign for TinkerTokens {
    fn add_assign(&mut self, more: Self) {
        self.trained += more.trained;
        self.read += more.read;
        self.sampled += more.sampled;
    }
}
