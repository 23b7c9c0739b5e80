//! Memory that many share, counted in bytes.

use std::sync::Arc;

use crate::metrics::Counter;

/// A bound on bytes that many hold together: captures, or request bodies. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    used: Arc<Counter>,
}

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub struct Held {
    n_bytes: u64,
    budget: Budget,
}

// === impl Budget ===

impl Budget {
    /// A budget of `limit` bytes; `used` says how many are held.
    pub fn new(limit: u64, used: Arc<Counter>) -> Self {
        Self { limit, used }
    }

    /// The bound, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// A part of no bytes yet.
    pub fn nothing(&self) -> Held {
        Held {
            n_bytes: 0,
            budget: self.clone(),
        }
    }

    /// Takes `n_bytes`, if there are as many. Of two that ask at once both may be refused where there
    /// was room for one; never is more given than there is.
    pub fn hold(&self, n_bytes: usize) -> Option<Held> {
        let mut held = self.nothing();
        held.grow(n_bytes as u64).then_some(held)
    }
}

// === impl Held ===

impl Held {
    /// Takes `more` bytes, if there are as many; whether there were.
    pub fn grow(&mut self, more: u64) -> bool {
        let Budget { limit, used } = &self.budget;
        used.add(more);
        let fits = used.get() <= *limit;
        if fits {
            self.n_bytes += more;
        } else {
            used.sub(more);
        }
        fits
    }

    /// Holds `n_bytes` from now on, be there as many or not: the memory is taken already.
    pub fn set(&mut self, n_bytes: u64) {
        let used = &self.budget.used;
        match n_bytes.checked_sub(self.n_bytes) {
            Some(more) => used.add(more),
            None => used.sub(self.n_bytes - n_bytes),
        }
        self.n_bytes = n_bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}
