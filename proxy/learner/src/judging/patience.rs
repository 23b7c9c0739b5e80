//! Decides when a turn that the judge failed to judge is sent to it again.
//!
//! A judge that is down comes back within minutes; one that refuses this turn (a content filter) never accepts it. So
//! each failure of a turn doubles its pause, and a refused turn costs a few requests each day.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use metaclaw_chat::TurnId;
use tokio::time::Instant;

/// The pause after a turn's first failure.
const FIRST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(30 * 60);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times();

/// Turns that wait for the judge, each until its own time.
#[derive(Debug, Default)]
pub(super) struct Patience {
    waiting: BTreeSet<(Instant, TurnId)>,
    /// The next pauses of turns that the judge failed to judge.
    further: BTreeMap<TurnId, ExponentialBackoff>,
}

// === impl Patience ===

impl Patience {
    /// Records that the judge failed to judge a turn.
    pub(super) fn failed(&mut self, id: TurnId) {
        let further = self.further.entry(id).or_insert_with(|| PAUSES.build());
        let pause = further.next().unwrap_or(LONGEST);
        self.waiting.insert((Instant::now() + pause, id));
    }

    /// Removes a turn that is settled.
    pub(super) fn settled(&mut self, id: TurnId) {
        self.further.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns when the first of them is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// Takes those that are due.
    pub(super) fn due(&mut self) -> Vec<TurnId> {
        let now = Instant::now();
        let mut due = Vec::new();
        while self.next().is_some_and(|until| until <= now) {
            due.extend(self.waiting.pop_first().map(|(_, id)| id));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: TurnId = TurnId { session: 1, seq: 0 };

    /// Records a failure, waits until the turn is due, and returns how long that took.
    async fn pause(patience: &mut Patience) -> Duration {
        let began = Instant::now();
        patience.failed(TURN);
        assert!(patience.due().is_empty());
        tokio::time::sleep_until(patience.next().unwrap()).await;
        assert_eq!(patience.due(), [TURN]);
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn each_failure_of_a_turn_doubles_its_pause() {
        let mut patience = Patience::default();
        let first = pause(&mut patience).await;
        let second = pause(&mut patience).await;
        assert!(first >= FIRST && second >= 2 * FIRST && second < 3 * FIRST);
        for _ in 0..40 {
            patience.failed(TURN);
            patience.waiting.clear();
        }
        assert!(pause(&mut patience).await < LONGEST + FIRST);
        patience.settled(TURN);
        assert!(pause(&mut patience).await < 2 * FIRST);
    }
}
