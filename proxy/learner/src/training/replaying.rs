//! Makes the same steps from what is there, without waiting for more, for a replay.

use metaclaw_chat::AgentId;

use super::{
    Training,
    next::{BatchReason, NextAction},
};
use crate::{error::TrainError, status::StepReport};

// === impl Training ===

impl Training {
    /// Makes an agent's due steps, up to a limit; calls `told` for each.
    ///
    /// # Errors
    /// Returns [`TrainError`], also if a service does not answer that normal training would wait for.
    pub(crate) async fn all_steps(
        &mut self,
        agent: &AgentId,
        most: usize,
        mut told: impl FnMut(StepReport) + Send,
    ) -> Result<usize, TrainError> {
        let mut n_steps = 0;
        while n_steps < most {
            match self.next_batch(agent).next(BatchReason::Due).await? {
                NextAction::Nothing => break,
                NextAction::Again => {}
                NextAction::Teach(ids) => {
                    let turns = ids.into_iter().map(|id| (agent.clone(), id));
                    self.teach(turns.collect()).await?;
                    self.judge_answers(agent)?;
                }
                NextAction::Step(base, batch) => {
                    let made = self.steps(agent, &base, batch).await?;
                    n_steps += made.len();
                    made.into_iter().for_each(&mut told);
                }
            }
        }
        Ok(n_steps)
    }

    /// If the judge cannot be reached, turns wait; in a replay, nothing comes back to them later.
    fn judge_answers(&mut self, agent: &AgentId) -> Result<(), TrainError> {
        if !self.context.agent(agent).teacher.is_resting() {
            return Ok(());
        }
        let failing = self.context.shared.status.read().judging.failing;
        let why = failing.unwrap_or_else(|| "the judge does not answer".to_owned());
        Err(TrainError::NoTeacher { why })
    }

    /// Releases what it holds at the training server.
    pub(crate) async fn close(&mut self) {
        self.context.close().await;
    }

    /// Returns how much of an agent's waits: samples, and turns that the teacher has not answered.
    pub(crate) fn n_left(&self, agent: &AgentId) -> usize {
        let notes = self.context.shared.status.read();
        let counts = notes.agents.get(agent).map(|known| known.counts);
        counts.map_or(0, |it| it.redo + it.unanswered + it.binary_rl)
    }
}
