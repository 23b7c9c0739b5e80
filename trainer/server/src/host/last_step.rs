//! The number of steps of the last used run.

use std::sync::{Mutex, PoisonError};

/// Returns the steps of the last used run, for `/v1/health`, or `None` before there is one.
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
