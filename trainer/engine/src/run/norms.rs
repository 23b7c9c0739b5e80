//! Detects outlier gradients by comparing them with earlier ones.

use std::collections::VecDeque;

/// Norms of a run's last gradients in order, including skipped ones, so that a run whose gradients grew permanently
/// continues.
#[derive(Debug, Default)]
pub(super) struct RecentNorms {
    norms: VecDeque<f64>,
}

/// The number that is remembered, about as many steps as a day of learning has.
pub(super) const REMEMBERED: usize = 32;
/// With fewer norms, no gradient is an outlier.
const FEWEST: usize = 5;

// === impl RecentNorms ===

impl RecentNorms {
    pub(super) fn push(&mut self, norm: f64) {
        self.norms.push_back(norm);
        if self.norms.len() > REMEMBERED {
            self.norms.pop_front();
        }
    }

    /// Returns `None` if there are too few norms.
    pub(super) fn median(&self) -> Option<f64> {
        if self.norms.len() < FEWEST {
            return None;
        }
        let mut sorted: Vec<f64> = self.norms.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// Returns whether a norm is over `factor` times the median. 0 means never.
    pub(super) fn is_outlier(&self, norm: f64, factor: f64) -> bool {
        let median = self.median().filter(|&median| median > 0.0);
        factor > 0.0 && median.is_some_and(|median| norm > factor * median)
    }
}
