//! Computes how long to wait before the trainer is started again.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// The pauses are 0.1, 0.4, 1.6, 6.4, 25.6 and then 30 seconds.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .with_factor(4.0)
    .without_max_times();
/// After this uptime, the next failure counts as the first.
const HEALTHY: Duration = Duration::from_secs(60);

/// The pauses after consecutive failures.
#[derive(Debug)]
pub(super) struct Backoff(ExponentialBackoff);

// === impl Backoff ===

impl Backoff {
    /// Creates the pauses for a trainer that has not failed yet.
    pub(super) fn new() -> Self {
        Self(PAUSES.build())
    }

    /// Returns the pause after a failure; `lived` is the uptime before it.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= HEALTHY {
            *self = Self::new();
        }
        self.0.next().unwrap_or(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_at_first_and_fast_again_after_a_long_life() {
        let mut backoff = Backoff::new();
        let short = Duration::from_secs(1);
        let pauses: Vec<u128> = (0..7).map(|_| backoff.after(short).as_millis()).collect();
        assert_eq!(pauses, [100, 400, 1_600, 6_400, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.after(HEALTHY), FIRST);
    }
}
