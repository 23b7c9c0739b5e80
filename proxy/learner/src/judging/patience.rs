//! The pauses after failures of the judge.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use metaclaw_chat::TurnId;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(30 * 60);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times();

#[derive(Debug, Default)]
pub(super) struct Patience {
    waiting: BTreeSet<(Instant, TurnId)>,
    further: BTreeMap<TurnId, ExponentialBackoff>,
}

// === impl Patience ===

impl Patience {
    pub(super) fn failed(&mut self, id: TurnId) {
        let further = self.further.entry(id).or_insert_with(|| PAUSES.build());
        let pause = further.next().unwrap_or(LONGEST);
        self.waiting.insert((Instant::now() + pause, id));
    }

    pub(super) fn settled(&mut self, id: TurnId) {
        self.further.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

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
