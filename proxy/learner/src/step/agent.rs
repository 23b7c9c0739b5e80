//! What the training task remembers of one agent between two looks at the log, and what its steps are made with.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use metaclaw_chat::{AgentId, TurnId, whole_ms};
use metaclaw_trainer_api::CheckpointName;
use metaclaw_turns::{LogError, Step, StepOutcome};
use tokio::time::Instant;

use crate::{
    batch::SeenTurns,
    gate::{Gate, VerdictHistory},
    lineage::{ResumePoint, Shape},
    shared::Shared,
    teacher::TeacherMemory,
    trainer::{RunHandle, StepRunner},
};

/// The pause after the first refusal in a row. Each further one doubles it, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times();

/// One agent's side of training. All of it can be had again from the log and the checkpoints.
#[derive(Debug, Default)]
pub(crate) struct AgentState {
    pub(crate) run: RunHandle,
    /// What its next step continues, and the shape that this was worked out for.
    pub(crate) resume: Option<(ResumePoint, Shape)>,
    /// What it had to train on at the last look.
    pub(crate) seen: SeenTurns,
    /// What the teacher came to about its turns.
    pub(crate) teacher: TeacherMemory,
    /// What an external teacher adds to the advantages of the next batch's ids.
    pub(crate) pulls: BTreeMap<TurnId, Arc<[f32]>>,
    /// Checkpoints that the server cannot use, or whose weights are no numbers.
    pub(crate) unfit: BTreeSet<CheckpointName>,
    /// Failures to settle the step that an earlier process left open.
    pub(crate) n_unsettled: usize,
    /// What was seen of its verdicts.
    pub(crate) verdicts: VerdictHistory,
    rest: Option<RefusalPause>,
}

/// What the steps of one agent are made with: the two stores, the gate, and what is remembered of the agent.
pub(crate) struct StepSite<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) gate: &'a mut Gate,
    pub(crate) runner: StepRunner,
    pub(crate) agent: &'a AgentId,
    pub(crate) state: &'a mut AgentState,
    /// Checkpoints that the next steps of other agents start from. They must not be deleted.
    pub(crate) others_start: Vec<CheckpointName>,
}

/// A step in one of its states.
pub(crate) struct TrainingStep<'a, S> {
    pub(super) site: StepSite<'a>,
    pub(super) state: S,
}

/// A pause in which what was refused is not asked for.
#[derive(Debug)]
pub(crate) struct RefusalPause {
    until: Instant,
    /// How long the pauses would be that follow.
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
        self.rest = Some(RefusalPause::after(self.rest.take(), why, now_ms));
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

    /// The checkpoint that its next step starts from, where that is known.
    pub(crate) fn start(&self) -> Option<&CheckpointName> {
        self.resume.as_ref()?.0.checkpoint.as_ref()
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
    pub(crate) fn resting(&self) -> Option<&RefusalPause> {
        self.rest.as_ref().filter(|rest| !rest.is_over())
    }
}

// === impl StepSite ===

impl StepSite<'_> {
    /// The agent's steps in the log.
    pub(crate) async fn steps(&self) -> Result<Vec<Step>, LogError> {
        let shared = self.shared;
        shared.persist(|| shared.log.steps(self.agent)).await
    }

    /// Notes in the log what a step came to.
    pub(crate) async fn finish(&self, n: u64, outcome: StepOutcome) -> Result<(), LogError> {
        let log = &self.shared.log;
        let finish = || log.finish_step(self.agent, n, outcome.clone());
        // It is not open after a failure whose first try was written all the same.
        self.shared.persist(finish).await.map(|_| ())
    }

    /// Has old checkpoints deleted. Those stay, however old, whose adapters serve, those that an open step goes back to,
    /// and those that the next steps start from.
    ///
    /// # Errors
    /// The log's: where it cannot say what is needed, nothing is deleted.
    pub(crate) async fn prune(&self) -> Result<(), LogError> {
        let shared = self.shared;
        let serving = shared.persist(|| shared.log.serving()).await?;
        let open = shared.persist(|| shared.log.open_steps()).await?;
        let adapters = serving.into_iter().map(|(_, adapter)| adapter);
        let parents = open.into_iter().filter_map(|step| step.begun.parent);
        // An adapter's checkpoint has its name.
        let names = adapters.chain(parents).filter_map(|name| name.parse().ok());
        let starts = self.state.start().into_iter().chain(&self.others_start);
        let needed = names.chain(starts.cloned()).collect();
        self.runner.prune(needed).await;
        Ok(())
    }
}

// === impl RefusalPause ===

impl RefusalPause {
    /// The pause after a refusal; `earlier` is the one before it, if the last attempt was refused as well.
    pub(crate) fn after(earlier: Option<Self>, why: String, now_ms: u64) -> Self {
        let mut further = earlier.map_or_else(|| PAUSES.build(), |rest| rest.further);
        let length = further.next().unwrap_or(LONGEST);
        Self {
            until: Instant::now() + length,
            further,
            why,
            until_ms: now_ms.saturating_add(whole_ms(length)),
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
            let rest = RefusalPause::after(last.take(), "no".to_owned(), 0);
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
        rest = RefusalPause::after(Some(rest), "no".to_owned(), 0);
        assert!(!rest.is_over());
        rest.end();
        assert!(rest.is_over());
    }
}
