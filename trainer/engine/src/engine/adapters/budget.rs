//! The budget of bytes for adapters, reserved before they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct AdapterBudget {
    limit: usize,
    used: AtomicUsize,
}

/// Bytes that were taken from a budget. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Reserved {
    budget: Arc<AdapterBudget>,
    pub(super) bytes: usize,
}

// === impl AdapterBudget ===

impl AdapterBudget {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { limit, used })
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

// === impl Reserved ===

impl Reserved {
    pub(super) fn take(budget: &Arc<AdapterBudget>, bytes: usize) -> Option<Self> {
        let more = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= budget.limit);
        let taken = budget
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Self {
            budget: Arc::clone(budget),
            bytes,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
