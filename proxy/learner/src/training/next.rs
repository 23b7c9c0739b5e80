//! The batch that an agent's next step is of: collected, answered by the teacher, filled up with what may serve again.

use std::sync::Arc;

use metaclaw_chat::{AgentId, TurnId, now_ms};

use crate::{
    config::Mode,
    error::TrainError,
    lineage::BaseModel,
    samples::{self, Baselines, Batch, Redo, Samples},
    status::Phase,
    step::{StepTransaction, TrainingContext},
    teacher::{self, TeachError},
};

/// Samples of each method in a step that was asked for: more is a rate of learning that nobody chose.
const MOST_AT_ONCE: usize = 64;

/// The making of one agent's next batch.
pub(super) struct NextBatch<'a> {
    context: &'a mut TrainingContext,
    agent: &'a AgentId,
}

impl<'a> NextBatch<'a> {
    pub(super) fn new(context: &'a mut TrainingContext, agent: &'a AgentId) -> Self {
        Self { context, agent }
    }

    /// What an agent's next step is of, if one is due, and the base model that it was sampled from.
    ///
    /// Where the teacher has to answer turns first it answers one, and the next look goes on: other agents have their
    /// turn between. A step that was asked for has all answered at once.
    pub(super) async fn made(
        mut self,
        forced: bool,
    ) -> Result<Option<(BaseModel, Batch)>, TrainError> {
        let (mut samples, mut base) = self.collect().await?;
        let shared = Arc::clone(&self.context.shared);
        let rl = &shared.config.rl;
        let may_begin = forced || (samples.may_be_due(rl, now_ms()) && self.may_begin());
        if !may_begin {
            return Ok(None);
        }
        let limit = if forced {
            rl.batch_size.max(MOST_AT_ONCE)
        } else {
            rl.batch_size
        };
        if forced {
            let wanted = limit.saturating_sub(samples.redo.len());
            for turn in samples.unanswered.iter().take(wanted) {
                if !self.teach(turn.id).await? {
                    break;
                }
            }
            (samples, base) = self.collect().await?;
        } else {
            // What it is to be answered with comes first, so that a step has both.
            let next = samples.unanswered.first();
            if let Some(turn) = next.filter(|_| samples.redo.len() < limit)
                && self.teach(turn.id).await?
            {
                shared.wake.notify_one();
                return Ok(None);
            }
            if !samples.are_due(rl, now_ms()) {
                return Ok(None);
            }
        }
        let Some(base) = base else {
            return Ok(None);
        };
        shared.status.window(self.agent, now_ms());
        let baselines = if rl.method.binary_rl {
            samples::baselines(&shared, self.agent).await?
        } else {
            Baselines::default()
        };
        let n_new = samples.redo.len().min(limit);
        let again = self.again(&base, n_new).await?;
        let batch = Batch::new(&samples, again, rl, baselines, limit);
        for (id, why) in &batch.spent {
            shared.spend(*id, why).await?;
        }
        if batch.is_empty() || (!forced && !batch.spent.is_empty()) {
            // What was spent may have been what made the batch full: look again.
            shared.wake.notify_one();
            return Ok(None);
        }
        Ok(Some((base, batch)))
    }

    /// What an agent has to train on now.
    async fn collect(&mut self) -> Result<(Samples, Option<BaseModel>), TrainError> {
        let agent = self.agent;
        let shared = Arc::clone(&self.context.shared);
        let state = self.context.agent(agent);
        let rl = &shared.config.rl;
        state.teacher.is_told(teacher::wishes(&shared, agent));
        let teaching = state.teacher.teaching(rl);
        let (samples, base) = samples::collect(&shared, &mut state.seen, agent, teaching).await?;
        let not_taught = state.teacher.targets.n_declined();
        shared.status.counts(agent, samples.counts(), not_taught);
        Ok((samples, base))
    }

    /// As many samples again that earlier steps had as are new, the least used first.
    async fn again(&mut self, base: &BaseModel, n_new: usize) -> Result<Vec<Redo>, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        if n_new == 0 || shared.config.rl.reuse <= 1 {
            return Ok(Vec::new());
        }
        let step = StepTransaction::new(self.context, self.agent).await?;
        let ancestry = step.ancestry(base).await?;
        let teaching = self
            .context
            .agent(self.agent)
            .teacher
            .teaching(&shared.config.rl);
        let used = samples::used(&shared, self.agent, (&ancestry, base), teaching).await?;
        let mut again = Vec::new();
        for turn in used {
            if again.len() >= n_new {
                break;
            }
            // After a restart it is drawn again.
            if !self
                .context
                .agent(self.agent)
                .teacher
                .targets
                .knows(turn.id)
                && !self.teach(turn.id).await?
            {
                break;
            }
            let targets = &self.context.agent(self.agent).teacher.targets;
            if let Some(target) = targets.target(turn.id) {
                again.push(Redo {
                    turn,
                    target,
                    is_fresh: false,
                });
            }
        }
        Ok(again)
    }

    /// Has the teacher answer a turn; false while the judge, who looks at its replies, does not answer.
    async fn teach(&mut self, id: TurnId) -> Result<bool, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let policy = Arc::clone(&self.context.policy);
        let memory = &mut self.context.agent(self.agent).teacher;
        if memory.is_resting() {
            return Ok(false);
        }
        match teacher::teach(&shared, &policy, memory, id).await {
            Ok(()) => Ok(true),
            Err(TeachError::Judge(failed)) => {
                memory.rests();
                shared.status.judge_failed(&failed);
                Ok(false)
            }
            Err(TeachError::Server(error)) if error.is_unreachable() => {
                Err(self.context.no_trainer(&error))
            }
            Err(TeachError::Server(error)) => {
                let why = error.to_string();
                Err(TrainError::NoTeacher { why })
            }
            Err(TeachError::Log(error)) => Err(error.into()),
        }
    }

    /// Whether a step may begin without being asked for.
    fn may_begin(&mut self) -> bool {
        let agent = self.agent;
        if (self.context.shared.is_off)(agent) {
            return false;
        }
        if let Some(rest) = self.context.agent(self.agent).resting() {
            let (why, until_ms) = (rest.why.clone(), rest.until_ms);
            self.context.waits_for(Phase::Resting {
                agent: agent.clone(),
                why,
                until_ms,
            });
            return false;
        }
        match self.context.shared.config.mode_of(agent) {
            Mode::Rl => true,
            Mode::SkillsOnly => false,
            // Nothing tests what would serve before it does: until then somebody has to want it. Afterwards the
            // window decides ([`crate::shared::Shared::window`]).
            Mode::Auto => {
                self.context.waits_for(Phase::AwaitingRequest);
                false
            }
        }
    }
}
