//! Remembers for an hour what a server lacks, because the server may be replaced or updated.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::lock::lock;

/// How long this is remembered.
pub(super) const FORGET: Duration = Duration::from_secs(3_600);

/// Whether a server lacks something, as far as is known.
#[derive(Debug, Default)]
pub(super) struct NegativeCache(Mutex<Option<Instant>>);

// === impl NegativeCache ===

impl NegativeCache {
    /// Returns whether it was found to lack it within the last hour.
    pub(super) fn is_known(&self) -> bool {
        lock(&self.0).is_some_and(|since| since.elapsed() < FORGET)
    }

    /// Records that it lacks it.
    pub(super) fn set(&self) {
        *lock(&self.0) = Some(Instant::now());
    }
}
