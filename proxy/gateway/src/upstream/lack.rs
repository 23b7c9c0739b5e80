//! What a server turned out to lack: held against it for an hour, as it may be replaced, or learn.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// How long it holds.
pub(super) const FORGET: Duration = Duration::from_secs(3_600);

/// Whether it lacks something, as far as is known.
#[derive(Debug)]
pub(super) struct Lack {
    since: Instant,
    /// It does, until so many milliseconds after `since`; 0 where it does not.
    until_ms: AtomicU64,
}

// === impl Lack ===

impl Lack {
    pub(super) fn is_known(&self) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        // The clock is read only where there is something to forget.
        until_ms > 0 && self.since.elapsed() < Duration::from_millis(until_ms)
    }

    /// Notes whether it does.
    pub(super) fn set(&self, lacks: bool) {
        let until_ms = if lacks {
            let until = self.since.elapsed() + FORGET;
            u64::try_from(until.as_millis()).unwrap_or(u64::MAX)
        } else {
            0
        };
        self.until_ms.store(until_ms, Ordering::Relaxed);
    }
}

impl Default for Lack {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            until_ms: AtomicU64::new(0),
        }
    }
}
