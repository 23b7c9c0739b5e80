//! The adapter that was last read to score a text with, so that the next text does not read it again.

use std::sync::{Arc, Mutex, PoisonError};

use metaclaw_engine::{adapter::LoadedAdapter, folder::Stamp};
use metaclaw_trainer_api::AdapterName;

/// The adapter that was last read to score with.
#[derive(Debug, Default)]
pub(super) struct LastScored(Mutex<Option<Scored>>);

/// An adapter as it was on disk. No two threads may use one tensor at a time.
#[derive(Debug)]
pub(super) struct Scored {
    pub(super) name: AdapterName,
    pub(super) stamp: Stamp,
    pub(super) adapter: Arc<Mutex<LoadedAdapter>>,
}

// === impl LastScored ===

impl LastScored {
    pub(super) fn get(
        &self,
        name: &AdapterName,
        stamp: &Stamp,
    ) -> Option<Arc<Mutex<LoadedAdapter>>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref()?;
        let is_it = last.name == *name && last.stamp == *stamp;
        is_it.then(|| Arc::clone(&last.adapter))
    }

    pub(super) fn set(&self, scored: Scored) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(scored);
    }
}
