//! How long to wait before the next attempt.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(20);

/// The wait after the `attempt`th failure (from 0): exponential, and at least what the server asked
/// for. `luck` in 0..1 spreads those that failed together over the second half of it.
pub(crate) fn wait(attempt: u32, retry_after: Option<Duration>, luck: f64) -> Duration {
    let doubled = FIRST.saturating_mul(2u32.saturating_pow(attempt)).min(LAST);
    let spread = doubled.mul_f64(0.5 + 0.5 * luck.clamp(0.0, 1.0));
    spread.max(retry_after.unwrap_or_default())
}

/// A number in 0..1 that differs from call to call: each `RandomState` has keys of its own.
pub(crate) fn luck() -> f64 {
    let bits = RandomState::new().hash_one(0u8) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// `Retry-After` in seconds. Its other form, a date, is not read: then our own wait stands.
pub(crate) fn retry_after(header: Option<&str>) -> Option<Duration> {
    let seconds: f64 = header?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_stay_between_half_and_whole() {
        for (attempt, whole) in [(0, 500), (1, 1_000), (3, 4_000), (9, 20_000), (99, 20_000)] {
            let whole = Duration::from_millis(whole);
            assert_eq!(wait(attempt, None, 0.0), whole / 2);
            assert_eq!(wait(attempt, None, 1.0), whole);
        }
        assert!((0.0..1.0).contains(&luck()));
    }

    #[test]
    fn what_the_server_asks_for_is_waited_at_least() {
        let asked = retry_after(Some(" 7 "));
        assert_eq!(asked, Some(Duration::from_secs(7)));
        assert_eq!(wait(0, asked, 0.0), Duration::from_secs(7));
        for none in [
            "",
            "soon",
            "-1",
            "NaN",
            "inf",
            "Fri, 20 Nov 2026 07:28:00 GMT",
        ] {
            assert_eq!(retry_after(Some(none)), None, "{none}");
        }
    }
}
