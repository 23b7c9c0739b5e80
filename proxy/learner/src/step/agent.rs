//! What the training task remembers of one agent between two looks at the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use metaclaw_chat::TurnId;
use metaclaw_trainer_api::CheckpointName;
use tokio::time::Instant;

use super::{run::RunHandle, watched::Watched};
use crate::{
    lineage::{ResumePoint, Shape},
    samples::Seen,
    teacher::Memory,
};

/// The first rest after a refusal; each further one in a row doubles it.
const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(3_600);
const RESTS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST_REST)
    .with_max_delay(LONGEST_REST)
    .without_max_times();

/// One agent's side of training. All of it can be had again from the log and the checkpoints.
#[derive(Debug, Default)]
pub(crate) struct AgentState {
    /// Its training run.
    pub(crate) run: RunHandle,
    /// What its next step continues, and the shape that this was worked out for.
    pub(crate) resume: Option<(ResumePoint, Shape)>,
    /// What it had to train on at the last look.
    pub(crate) seen: Seen,
    /// What the teacher came to about its turns.
    pub(crate) teacher: Memory,
    /// What an external teacher adds to the advantages of the next batch's ids.
    pub(crate) pulls: BTreeMap<TurnId, Arc<[f32]>>,
    /// Checkpoints that the server cannot use, or whose weights are no numbers.
    pub(crate) unfit: BTreeSet<CheckpointName>,
    /// Failures to settle the step that an earlier process left open.
    pub(crate) n_unsettled: usize,
    /// What was seen of its verdicts.
    pub(crate) watched: Watched,
    rest: Option<Rest>,
}

/// No step is tried before `until`.
#[derive(Debug)]
pub(crate) struct Rest {
    until: Instant,
    /// How long those would be that follow.
    further: ExponentialBackoff,
    /// What the training server said.
    pub(crate) why: String,
    /// `until`, in Unix milliseconds.
    pub(crate) until_ms: u64,
}

// === impl AgentState ===

impl AgentState {
    /// The training server refused a step: try again, but not at once.
    pub(crate) fn refused(&mut self, why: String, now_ms: u64) {
        let rest = self.rest.take();
        let mut further = rest.map_or_else(|| RESTS.build(), |rest| rest.further);
        let length = further.next().unwrap_or(LONGEST_REST);
        let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        self.rest = Some(Rest {
            until: Instant::now() + length,
            further,
            why,
            until_ms: now_ms.saturating_add(length_ms),
        });
        // What was known may be what was wrong.
        self.resume = None;
        self.run = RunHandle::default();
    }

    /// Nothing goes on from this checkpoint any more.
    pub(crate) fn set_unfit(&mut self, checkpoint: CheckpointName) {
        self.unfit.insert(checkpoint);
        self.resume = None;
        self.run.at = None;
    }

    /// Whether the last step was refused as well.
    pub(crate) fn was_refused(&self) -> bool {
        self.rest.is_some()
    }

    /// A step was made.
    pub(crate) fn stepped(&mut self, point: ResumePoint, shape: Shape) {
        self.resume = Some((point, shape));
        self.rest = None;
    }

    /// Why no step is tried for now.
    pub(crate) fn resting(&self) -> Option<&Rest> {
        self.rest
            .as_ref()
            .filter(|rest| Instant::now() < rest.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_refusal_in_a_row_doubles_the_rest() {
        let mut state = AgentState::default();
        assert!(state.resting().is_none());
        let mut rest = || {
            state.refused("no".to_owned(), 0);
            Duration::from_millis(state.resting().unwrap().until_ms)
        };
        assert_eq!(rest(), FIRST_REST);
        assert_eq!(rest(), 2 * FIRST_REST);
        assert_eq!((0..10).map(|_| rest()).last(), Some(LONGEST_REST));
        tokio::time::advance(LONGEST_REST).await;
        assert!(state.resting().is_none());
    }
}
