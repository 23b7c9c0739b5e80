//! Pauses after refusals: a minute, and after each further refusal in a row twice as long, up to an hour.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// The pause after the first refusal.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times();

/// A pause in which what was refused is not asked for.
#[derive(Debug)]
pub(crate) struct Rest {
    until: Instant,
    /// How long the pauses would be that follow.
    further: ExponentialBackoff,
    /// What the training server said.
    pub(crate) why: String,
    /// `until`, in Unix milliseconds.
    pub(crate) until_ms: u64,
}

// === impl Rest ===

impl Rest {
    /// The pause after a refusal; `earlier` is the one before it, if the last attempt was refused as well.
    pub(crate) fn after(earlier: Option<Self>, why: String, now_ms: u64) -> Self {
        let mut further = earlier.map_or_else(|| PAUSES.build(), |rest| rest.further);
        let length = further.next().unwrap_or(LONGEST);
        let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self {
            until: Instant::now() + length,
            further,
            why,
            until_ms: now_ms.saturating_add(length_ms),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Ends the pause now: its owner asks for what was refused.
    pub(crate) fn end(&mut self) {
        self.until = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_refusal_in_a_row_doubles_the_pause() {
        let mut last = None;
        let mut pause = || {
            let rest = Rest::after(last.take(), "no".to_owned(), 0);
            assert!(!rest.is_over());
            let length = Duration::from_millis(rest.until_ms);
            last = Some(rest);
            length
        };
        assert_eq!(pause(), FIRST);
        assert_eq!(pause(), 2 * FIRST);
        assert_eq!((0..10).map(|_| pause()).last(), Some(LONGEST));
        let mut rest = last.unwrap();
        tokio::time::advance(LONGEST).await;
        assert!(rest.is_over());
        rest = Rest::after(Some(rest), "no".to_owned(), 0);
        assert!(!rest.is_over());
        rest.end();
        assert!(rest.is_over());
    }
}
