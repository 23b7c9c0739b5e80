//! Since when a peer is waited for, told from where it is seen to where it has an end.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// It is another's turn.
const NOT_NOW: u64 = u64::MAX;

/// Since when a peer is waited for, if it is.
#[derive(Debug)]
pub(crate) struct IdleClock {
    began: Instant,
    /// In milliseconds after `began`, or [`NOT_NOW`].
    since_ms: AtomicU64,
}

// === impl IdleClock ===

impl IdleClock {
    /// Waited for since `began`.
    pub(crate) fn from(began: Instant) -> Self {
        Self {
            began,
            since_ms: AtomicU64::new(0),
        }
    }

    /// Not waited for yet; `began` is any moment before it will be.
    pub(crate) fn not_yet(began: Instant) -> Self {
        Self {
            began,
            since_ms: AtomicU64::new(NOT_NOW),
        }
    }

    /// It moved: from now on it is waited for again.
    pub(crate) fn moved(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis());
        self.set(ms.unwrap_or(NOT_NOW));
    }

    /// It is another's turn.
    pub(crate) fn rests(&self) {
        self.set(NOT_NOW);
    }

    /// Since when; `None` while it is another's turn.
    pub(crate) fn since(&self) -> Option<Instant> {
        match self.since_ms.load(Ordering::Relaxed) {
            NOT_NOW => None,
            ms => Some(self.began + Duration::from_millis(ms)),
        }
    }

    fn set(&self, since_ms: u64) {
        self.since_ms.store(since_ms, Ordering::Relaxed);
    }
}
