//! 95 % intervals.

use serde::{Deserialize, Serialize};

/// The 0.975 quantile of the standard normal distribution.
const Z: f64 = 1.96;

/// The range in which a value lies with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ValueInterval {
    pub low: f64,
    pub high: f64,
}

// === impl ValueInterval ===

impl ValueInterval {
    /// Returns the interval of a mean of `n` values by the normal approximation. `std` is their standard deviation.
    /// `None` for fewer than two values.
    pub(super) fn of_mean(mean: f64, std: f64, n: f64) -> Option<Self> {
        let half = Z * std / (n - 1.0).sqrt();
        (n >= 2.0 && half.is_finite()).then_some(Self {
            low: mean - half,
            high: mean + half,
        })
    }
}

/// Returns Wilson's interval of the share that `n` is of `of`. If `of` is 0, every share is possible.
pub fn wilson(n: u64, of: u64) -> ValueInterval {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_nothing_of_none_and_of_all_stay_within_0_and_1() {
        let rounded = |n, of| {
            let ValueInterval { low, high } = wilson(n, of);
            format!("{low:.3} {high:.3}")
        };
        assert_eq!(rounded(0, 0), "0.000 1.000");
        assert_eq!(rounded(51, 60), "0.739 0.919");
        assert_eq!(rounded(0, 60), "0.000 0.060");
        assert_eq!(rounded(60, 60), "0.940 1.000");
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(ValueInterval::of_mean(0.5, 0.0, 1.0), None);
        assert_eq!(ValueInterval::of_mean(0.5, f64::NAN, 9.0), None);
        let four = ValueInterval::of_mean(0.0, 1.0, 5.0).unwrap();
        assert!((four.high - 0.98).abs() < 1e-9 && (four.low + 0.98).abs() < 1e-9);
    }
}
