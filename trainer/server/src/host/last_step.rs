//! How far the run is that was last used.

use std::sync::{Mutex, PoisonError};

/// Steps of the run that was last used, for `/v1/health`; `None` before there is one.
#[derive(Debug, Default)]
pub(super) struct LastStep(Mutex<Option<u64>>);

// === impl LastStep ===

impl LastStep {
    pub(super) fn get(&self) -> Option<u64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, step: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
    }
}
