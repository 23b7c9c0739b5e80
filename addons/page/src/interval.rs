//! With and without a lesson: the shares of good turns, and an interval for their difference.

use metaclaw_control::curves::{ValueInterval, wilson};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JudgedCounts {
    pub(crate) good: u64,
    pub(crate) bad: u64,
}

/// A value with its 95 % interval; all are shares from -1 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

// === impl JudgedCounts ===

impl JudgedCounts {
    pub(crate) fn n(self) -> u64 {
        self.good + self.bad
    }

    /// The share of good turns with Wilson's 95 % interval; `None` without turns.
    pub(crate) fn share(self) -> Option<Estimate> {
        if self.n() == 0 {
            return None;
        }
        let ValueInterval { low, high } = wilson(self.good, self.n());
        let value = self.good as f64 / self.n() as f64;
        Some(Estimate { value, low, high })
    }
}

/// The difference of two shares of good turns, `with` minus `without`, with a 95 % interval: method 10 of Newcombe
/// 1998 (<https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8%3C873::AID-SIM779%3E3.0.CO;2-I>), made of two Wilson
/// intervals.
///
/// # Units
/// Shares: 0.1 means ten of a hundred turns more were good.
pub(crate) fn difference(with: JudgedCounts, without: JudgedCounts) -> Option<Estimate> {
    let (a, b) = (with.share()?, without.share()?);
    let value = a.value - b.value;
    let distance = |x: f64, y: f64| x.hypot(y);
    Some(Estimate {
        value,
        low: value - distance(a.value - a.low, b.high - b.value),
        high: value + distance(a.high - a.value, b.value - b.low),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(good: u64, of: u64) -> JudgedCounts {
        JudgedCounts {
            good,
            bad: of - good,
        }
    }

    /// Newcombe's table II, example (a): 56/70 and 48/80.
    #[test]
    fn the_interval_is_the_published_one() {
        let it = difference(counts(56, 70), counts(48, 80)).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 5e-5;
        assert!(close(it.value, 0.2), "{it:?}");
        assert!(close(it.low, 0.0524) && close(it.high, 0.3339), "{it:?}");
    }

    #[test]
    fn nothing_is_said_of_no_turns_and_little_of_few() {
        assert_eq!(difference(counts(0, 0), counts(3, 4)), None);
        let few = difference(counts(2, 2), counts(0, 1)).unwrap();
        assert!(few.low < 0.0 && few.high <= 1.0 + 1e-9, "{few:?}");
    }
}
