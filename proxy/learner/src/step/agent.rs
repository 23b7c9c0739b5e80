//! What the training task remembers of one agent between two looks at the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::CheckpointName;

use super::{rest::Rest, run::RunHandle};
use crate::{
    batch::Seen,
    gate::VerdictHistory,
    lineage::{ResumePoint, Shape},
    teacher::Memory,
};

/// One agent's side of training. All of it can be had again from the log and the checkpoints.
#[derive(Debug, Default)]
pub(crate) struct AgentState {
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
    pub(crate) watched: VerdictHistory,
    rest: Option<Rest>,
}

// === impl AgentState ===

impl AgentState {
    /// The training server refused a step: try again, but not at once.
    pub(crate) fn refused(&mut self, why: String, now_ms: u64) {
        self.rest = Some(Rest::after(self.rest.take(), why, now_ms));
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
        self.rest.as_ref().filter(|rest| !rest.is_over())
    }
}
