//! Shares, and the intervals of shares and of their differences, with a confidence of 95 %.

use serde::{Deserialize, Serialize};

/// The 0.975 quantile of the standard normal distribution.
const Z: f64 = 1.96;

/// A share of turns or tokens: `n` of `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub n: u64,
    pub of: u64,
}

/// The range in which a value lies with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ValueInterval {
    pub low: f64,
    pub high: f64,
}

// === impl Share ===

impl Share {
    /// Returns the share, from 0 to 1, or `None` if `of` is 0.
    pub fn value(self) -> Option<f64> {
        (self.of > 0).then(|| self.n as f64 / self.of as f64)
    }

    /// Returns the share in words, or `None` if `of` is 0. What is less than half a percent is not nothing.
    pub fn text(self) -> Option<String> {
        Some(match self.percent()? {
            0 if self.n > 0 => "under 1 %".to_owned(),
            percent => format!("{percent} %"),
        })
    }

    /// Returns the share in percent, or `None` if `of` is 0.
    pub fn percent(self) -> Option<u64> {
        (self.n * 100 + self.of / 2).checked_div(self.of)
    }
}

/// Returns Wilson's interval of a share. If `of` is 0, every share is possible.
pub(crate) fn wilson(Share { n, of }: Share) -> ValueInterval {
    if of == 0 {
        let (low, high) = (0.0, 1.0);
        return ValueInterval { low, high };
    }
    let of = of as f64;
    let share = n as f64 / of;
    let middle = share + Z * Z / (2.0 * of);
    let half = Z * (share * (1.0 - share) / of + Z * Z / (4.0 * of * of)).sqrt();
    let scale = 1.0 + Z * Z / of;
    ValueInterval {
        low: ((middle - half) / scale).max(0.0),
        high: ((middle + half) / scale).min(1.0),
    }
}

/// Returns the interval of the difference of two shares, `a` minus `b`: method 10 of Newcombe 1998
/// (<https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8%3C873::AID-SIM779%3E3.0.CO;2-I>), made of two Wilson
/// intervals.
///
/// # Units
/// Shares: 0.1 means ten of a hundred turns more.
pub(crate) fn difference(a: Share, b: Share) -> Option<ValueInterval> {
    let (share_a, share_b) = (a.value()?, b.value()?);
    let (a, b) = (wilson(a), wilson(b));
    let value = share_a - share_b;
    Some(ValueInterval {
        low: value - (share_a - a.low).hypot(b.high - share_b),
        high: value + (a.high - share_a).hypot(share_b - b.low),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_nothing_of_none_and_of_all_stay_within_0_and_1() {
        let rounded = |n, of| {
            let ValueInterval { low, high } = wilson(Share { n, of });
            format!("{low:.3} {high:.3}")
        };
        assert_eq!(rounded(0, 0), "0.000 1.000");
        assert_eq!(rounded(51, 60), "0.739 0.919");
        assert_eq!(rounded(0, 60), "0.000 0.060");
        assert_eq!(rounded(60, 60), "0.940 1.000");
    }

    /// Newcombe's table II, example (a): 56/70 and 48/80.
    #[test]
    fn the_interval_of_a_difference_is_the_published_one() {
        let of = |n, of| Share { n, of };
        let interval = difference(of(56, 70), of(48, 80)).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 5e-5;
        assert!(
            close(interval.low, 0.0524) && close(interval.high, 0.3339),
            "{interval:?}"
        );
        assert_eq!(difference(of(0, 0), of(3, 4)), None);
        let few = difference(of(2, 2), of(0, 1)).unwrap();
        assert!(few.low < 0.0 && few.high <= 1.0 + 1e-9, "{few:?}");
    }

    #[test]
    fn a_share_of_nothing_is_unknown_and_others_are_rounded() {
        for (n, of, percent) in [
            (0, 0, None),
            (1, 2, Some(50)),
            (1, 3, Some(33)),
            (2, 3, Some(67)),
        ] {
            assert_eq!(Share { n, of }.percent(), percent, "{n} of {of}");
        }
        assert_eq!(Share { n: 0, of: 0 }.value(), None);
        for (n, of, text) in [
            (0, 0, None),
            (0, 9, Some("0 %")),
            (1, 2_000, Some("under 1 %")),
            (1, 200, Some("1 %")),
        ] {
            assert_eq!(Share { n, of }.text().as_deref(), text, "{n} of {of}");
        }
    }
}
