//! The batch that an agent's next step is of: collected, answered by the teacher, filled up with what may serve again.

use std::sync::Arc;

use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::{LogError, Step, StepOutcome};

use crate::{
    config::{Mode, VerdictMethod},
    error::TrainError,
    gate::Series,
    lineage::BaseModel,
    samples::{self, Baselines, Batch, MOST_AT_ONCE, Redo, Samples, Targets},
    status::Phase,
    step::{self, TrainingContext},
    teacher::{self, TeachError},
};

/// Replies that the weights are held at, for each sample of a batch.
const ANCHORS_A_SAMPLE: usize = 2;
/// The most of them: each is drawn once for every list of wishes.
const MOST_ANCHORS: usize = 16;

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
        if forced && self.has_made_all().await? {
            let most = rl.max_steps;
            let why = format!("rl.max_steps is {most}, and so many are made: 0 is no bound");
            return Err(TrainError::NotTaken { why });
        }
        let may_begin = forced || (samples.may_be_due(rl, now_ms()) && self.may_begin().await?);
        if !may_begin {
            return Ok(None);
        }
        if !samples.unhinted.is_empty() {
            for turn in samples.unhinted.iter().take(MOST_AT_ONCE) {
                self.hint(turn.id).await?;
            }
            (samples, base) = self.collect().await?;
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
        let baselines = if rl.method.verdict == Some(VerdictMethod::BinaryRl) {
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
        let batch = self.held(batch).await?;
        Ok(Some((base, batch)))
    }

    /// The batch with what holds the weights, where something is to.
    async fn held(&mut self, batch: Batch) -> Result<Batch, TrainError> {
        if self.context.shared.config.rl.anchor <= 0.0 {
            return Ok(batch);
        }
        let (n_redo, n_own) = batch.counts();
        let n = (ANCHORS_A_SAMPLE * (n_redo + n_own)).min(MOST_ANCHORS);
        let policy = Arc::clone(&self.context.policy);
        let memory = &mut self.context.agent(self.agent).teacher;
        let anchors = memory.anchors(&policy, n).await;
        Ok(batch.held_at(anchors.map_err(|error| self.not_taught(&error))?))
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
        if n_new == 0 {
            return Ok(Vec::new());
        }
        let used = step::again(self.context, self.agent, base).await?;
        let mut again = Vec::new();
        for turn in used {
            if again.len() >= n_new {
                break;
            }
            // After a restart it is drawn again.
            let is_known = self.targets().knows(&turn);
            if !is_known && !self.teach(turn.id).await? {
                break;
            }
            if let Some(target) = self.targets().target(&turn) {
                again.push(Redo {
                    turn,
                    target,
                    is_fresh: false,
                    told: Arc::default(),
                });
            }
        }
        Ok(again)
    }

    fn targets(&mut self) -> &Targets {
        &self.context.agent(self.agent).teacher.targets
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
            Err(TeachError::Server(error)) => Err(self.not_taught(&error)),
            Err(TeachError::Log(error)) => Err(error.into()),
        }
    }

    /// Has a turn's hints put to the teacher.
    async fn hint(&mut self, id: TurnId) -> Result<(), TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let policy = Arc::clone(&self.context.policy);
        let memory = &mut self.context.agent(self.agent).teacher;
        match teacher::hint(&shared, &policy, memory, id).await {
            Ok(()) => Ok(()),
            Err(TeachError::Server(error)) => Err(self.not_taught(&error)),
            Err(TeachError::Log(error)) => Err(error.into()),
            // Nobody is asked what a hint is worth.
            Err(TeachError::Judge(failed)) => {
                shared.status.judge_failed(&failed);
                Ok(())
            }
        }
    }

    fn not_taught(&mut self, error: &BackendError) -> TrainError {
        if error.is_unreachable() {
            return self.context.no_trainer(error);
        }
        let why = error.to_string();
        TrainError::NoTeacher { why }
    }

    /// Whether a step of an agent that is due may begin now; what it waits for is shown.
    async fn may_begin(&mut self) -> Result<bool, LogError> {
        let (agent, shared) = (self.agent, Arc::clone(&self.context.shared));
        if (shared.is_off)(agent) || shared.config.mode_of(agent) == Mode::SkillsOnly {
            return Ok(false);
        }
        let waits_for = if self.has_made_all().await? {
            Some(Phase::Finished {
                agent: agent.clone(),
                n_steps: shared.config.rl.max_steps,
            })
        } else if let Some(phase) = self.resting().await? {
            Some(phase)
        } else if shared.trains_when_asked(agent) {
            // Nothing tests what would serve: somebody has to want it.
            Some(Phase::AwaitingRequest)
        } else if shared.may_cost(agent).await? {
            None
        } else {
            Some(Phase::AwaitingWindow)
        };
        let may = waits_for.is_none();
        if let Some(phase) = waits_for {
            self.context.waits_for(phase);
        }
        Ok(may)
    }

    /// Whether an agent has made as many steps as `rl.max_steps` gives it. Those that the gate declined are in no weights.
    async fn has_made_all(&self) -> Result<bool, LogError> {
        let shared = &self.context.shared;
        let most = shared.config.rl.max_steps;
        if most == 0 {
            return Ok(false);
        }
        let steps = shared.persist(|| shared.log.steps(self.agent)).await?;
        let is_made = |step: &&Step| matches!(step.outcome, Some(StepOutcome::Trained { .. }));
        Ok(steps.iter().filter(is_made).count() as u64 >= most)
    }

    /// Whether no step of an agent is made for a while: the training server refused one, or the gate declined several adapters in
    /// a row.
    async fn resting(&mut self) -> Result<Option<Phase>, LogError> {
        let agent = self.agent;
        let rests = |why: &str, until_ms| Phase::Resting {
            agent: agent.clone(),
            why: why.to_owned(),
            until_ms,
        };
        if let Some(rest) = self.context.agent(agent).resting() {
            return Ok(Some(rests(&rest.why, rest.until_ms)));
        }
        let shared = &self.context.shared;
        let series = Series::of(&shared.persist(|| shared.log.steps(agent)).await?);
        let Some(last) = series.given_up() else {
            return Ok(None);
        };
        let funnel = shared.persist(|| shared.log.funnel(Some(agent))).await?;
        let until_ms = series.rests_until(now_ms(), funnel.judged);
        Ok(until_ms.map(|until_ms| rests(&last.why, until_ms)))
    }
}
