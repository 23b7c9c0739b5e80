//! How long to wait before the next try: hardly at first, then ever longer.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// A life this long proves that starting works: the next failure counts as the first.
const HEALTHY: Duration = Duration::from_secs(60);

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    n_failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// The pause after a life of length `lived`: 0.1, 0.4, 1.6, 6.4, then 25.6 and 30 seconds.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= HEALTHY {
            self.n_failures = 0;
        }
        let pause = FIRST.saturating_mul(4_u32.saturating_pow(self.n_failures));
        self.n_failures = self.n_failures.saturating_add(1);
        pause.min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_at_first_and_fast_again_after_a_long_life() {
        let mut backoff = Backoff::default();
        let short = Duration::from_secs(1);
        let pauses: Vec<u128> = (0..7).map(|_| backoff.after(short).as_millis()).collect();
        assert_eq!(pauses, [100, 400, 1_600, 6_400, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.after(HEALTHY), FIRST);
    }
}
