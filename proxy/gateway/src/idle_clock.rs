//! A clock that says since when a peer is awaited. It is read in another place than where it is set.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use metaclaw_chat::whole_ms;
use tokio::time::Instant;

const NOT_NOW: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct IdleClock {
    began: Instant,
    /// Milliseconds after `began`, or [`NOT_NOW`].
    since_ms: AtomicU64,
}

// === impl IdleClock ===

impl IdleClock {
    pub(crate) fn from(began: Instant) -> Self {
        Self {
            began,
            since_ms: AtomicU64::new(0),
        }
    }

    /// The peer acted, so the wait begins again.
    pub(crate) fn moved(&self) {
        self.set(whole_ms(self.began.elapsed()));
    }

    pub(crate) fn rests(&self) {
        self.set(NOT_NOW);
    }

    /// Returns since when the peer is awaited, or `None` while another party has to act.
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
