//! What a server turned out to lack: held against it for an hour, as it may be replaced, or learn.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::lock::lock;

/// How long it holds.
pub(super) const FORGET: Duration = Duration::from_secs(3_600);

/// Whether a server lacks something, as far as is known.
#[derive(Debug, Default)]
pub(super) struct NegativeCache(Mutex<Option<Instant>>);

// === impl NegativeCache ===

impl NegativeCache {
    /// Whether it was found to lack it within the last hour.
    pub(super) fn is_known(&self) -> bool {
        lock(&self.0).is_some_and(|since| since.elapsed() < FORGET)
    }

    /// It was found to lack it.
    pub(super) fn set(&self) {
        *lock(&self.0) = Some(Instant::now());
    }
}
