//! What the training task is asked, and a step that was asked for while it is made.

use std::collections::VecDeque;

use metaclaw_chat::{AgentId, TurnId};
use tokio::sync::oneshot;

use crate::{
    batch::MOST_AT_ONCE,
    error::TrainError,
    status::StepReport,
    step::{StepPreview, TurnPreview},
};

/// What the training task is asked. For whom; none: everyone.
#[derive(Debug)]
pub(crate) enum TrainingRequest {
    Step(Option<AgentId>, TrainingReply<StepReport>),
    /// What that would be.
    DryRun(Option<AgentId>, TrainingReply<StepPreview>),
    /// What it would use of one turn of an agent's.
    Turn(AgentId, TurnId, TrainingReply<TurnPreview>),
}

/// Who asked, and may have gone.
pub(crate) type TrainingReply<T> = oneshot::Sender<Result<Vec<T>, TrainError>>;

/// A step that was asked for, of one agent or of several, one after the other.
#[derive(Debug)]
pub(super) struct WantedStep {
    /// Whose are still to be made.
    agents: VecDeque<AgentId>,
    /// Turns that the teacher has answered for the first of them.
    n_taught: usize,
    reports: Vec<StepReport>,
    failed: Option<TrainError>,
    reply: TrainingReply<StepReport>,
}

// === impl WantedStep ===

impl WantedStep {
    pub(super) fn new(agents: Vec<AgentId>, reply: TrainingReply<StepReport>) -> Self {
        Self {
            agents: agents.into(),
            n_taught: 0,
            reports: Vec::new(),
            failed: None,
            reply,
        }
    }

    /// Whose step is to be made next; none once all are.
    pub(super) fn agent(&self) -> Option<&AgentId> {
        self.agents.front()
    }

    /// Whether an agent's is still to be made.
    pub(super) fn is_for(&self, agent: &AgentId) -> bool {
        self.agents.contains(agent)
    }

    /// Whether the teacher is to answer more turns for it: as many as a step may have.
    pub(super) fn may_teach(&self) -> bool {
        self.n_taught < MOST_AT_ONCE
    }

    pub(super) fn taught(&mut self, n: usize) {
        self.n_taught += n;
    }

    /// The next agent's step was made, or there was nothing to make one of.
    pub(super) fn made(&mut self, reports: Vec<StepReport>) {
        self.reports.extend(reports);
        self.go_on();
    }

    /// It could not be made.
    pub(super) fn failed(&mut self, error: TrainError) {
        if let Some(agent) = self.agents.front() {
            tracing::warn!(%agent, %error, "no step");
        }
        self.failed = self.failed.take().or(Some(error));
        self.go_on();
    }

    fn go_on(&mut self) {
        self.agents.pop_front();
        self.n_taught = 0;
    }

    pub(super) fn end(self) {
        let result = match self.failed {
            Some(error) if self.reports.is_empty() => Err(error),
            Some(_) | None => Ok(self.reports),
        };
        // Nobody listening is no error.
        drop(self.reply.send(result));
    }

    pub(super) fn end_with(self, error: TrainError) {
        drop(self.reply.send(Err(error)));
    }
}
