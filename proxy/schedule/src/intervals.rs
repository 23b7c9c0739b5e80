//! Intervals of time.

use serde::{Deserialize, Serialize};

/// A half-open interval in Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Interval {
    pub start_ms: u64,
    /// The first moment after it.
    pub end_ms: u64,
}

// === impl Interval ===

impl Interval {
    pub(crate) fn covers(&self, now_ms: u64) -> bool {
        (self.start_ms..self.end_ms).contains(&now_ms)
    }
}

/// Returns when the interval that covers `now_ms` ends. Intervals that overlap or touch are joined. Returns `None` if
/// no interval covers it.
pub(crate) fn covered_until(intervals: &[Interval], now_ms: u64) -> Option<u64> {
    let mut until_ms = None;
    let mut at_ms = now_ms;
    loop {
        let covering = intervals.iter().filter(|interval| interval.covers(at_ms));
        match covering.map(|interval| interval.end_ms).max() {
            Some(end_ms) => {
                until_ms = Some(end_ms);
                at_ms = end_ms;
            }
            None => return until_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_touch_are_one() {
        let all = [(10, 20), (20, 30), (25, 40), (41, 50)]
            .map(|(start_ms, end_ms)| Interval { start_ms, end_ms });
        assert_eq!(covered_until(&all, 9), None);
        assert_eq!(covered_until(&all, 10), Some(40));
        assert_eq!(covered_until(&all, 40), None);
        assert_eq!(covered_until(&all, 41), Some(50));
    }
}
