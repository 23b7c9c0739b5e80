//! Which gradients are out of line, measured by those before.

use std::collections::VecDeque;

/// Norms of a run's last gradients, in order; skipped ones too, so that a run whose gradients grew for good goes on.
#[derive(Debug, Default)]
pub(super) struct RecentNorms {
    norms: VecDeque<f64>,
}

/// As many as are remembered: about as many steps as a day of learning has.
pub(super) const REMEMBERED: usize = 32;
/// Before so many there is no line to be out of.
const FEWEST: usize = 5;

// === impl RecentNorms ===

impl RecentNorms {
    pub(super) fn push(&mut self, norm: f64) {
        self.norms.push_back(norm);
        if self.norms.len() > REMEMBERED {
            self.norms.pop_front();
        }
    }

    /// `None` while there are too few to judge by.
    pub(super) fn median(&self) -> Option<f64> {
        if self.norms.len() < FEWEST {
            return None;
        }
        let mut sorted: Vec<f64> = self.norms.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// Whether a norm is over `factor` times the median; 0 is never.
    pub(super) fn is_outlier(&self, norm: f64, factor: f64) -> bool {
        let median = self.median().filter(|&median| median > 0.0);
        factor > 0.0 && median.is_some_and(|median| norm > factor * median)
    }
}
