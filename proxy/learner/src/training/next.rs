//! What is to be done for an agent next: whether a step that is due may begin, and the batch that it is of. A batch of chats
//! is collected, answered by the teacher, and filled up with what may serve again; a step of rollouts is apart from those.
//! An external teacher, if there is one, adds its advantages.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use metaclaw_chat::{AgentId, Message, TurnId, now_ms};
use metaclaw_turns::{LogError, Step, StepOutcome};
use tracing::Instrument as _;

use crate::{
    batch::{
        self, FoundGroups, FoundSamples, MOST_AT_ONCE, RolloutTurns, Samples, complete_groups,
    },
    config::{Mode, RlConfig},
    error::TrainError,
    external_teacher::NotScored,
    gate::Series,
    lineage::BaseModel,
    sample::{Batch, ExcludeReason, MOST_ROLLOUTS, RolloutGroup, Sample},
    status::Phase,
    step::TrainingContext,
    teacher::{self, TeachError},
};

/// Replies that the weights are held at, for each sample of a batch.
const ANCHORS_A_SAMPLE: usize = 2;
/// The most of them: each is drawn once for every list of wishes.
const MOST_ANCHORS: usize = 16;
/// Turns that are put to the teacher at once, a batch's. Of the replies to one some end early and one is long: those to several
/// fill the server better, and what is drawn together reads the weights once.
pub(super) const TAUGHT_AT_ONCE: usize = 4;

pub(super) struct NextBatch<'a> {
    pub(super) context: &'a mut TrainingContext,
    pub(super) agent: &'a AgentId,
}

#[derive(Debug)]
pub(super) enum NextAction {
    /// Nothing: no step is due, or none may begin.
    Nothing,
    /// What was found is of no use: there is to be looked again.
    Again,
    /// The teacher answers these turns; then there is to be looked again.
    Teach(Vec<TurnId>),
    /// A step of this batch, which was sampled from this base model.
    Step(BaseModel, Batch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchReason {
    Due,
    /// A person asked for a step of all samples that exist. If `may_teach` is true, the teacher first answers turns that
    /// have no target yet.
    AskedFor {
        may_teach: bool,
    },
}

impl<'a> NextBatch<'a> {
    pub(super) fn new(context: &'a mut TrainingContext, agent: &'a AgentId) -> Self {
        Self { context, agent }
    }

    /// What is to be done for the agent next. Nothing of it takes long: what does is said, so that others come between.
    pub(super) async fn next(mut self, why: BatchReason) -> Result<NextAction, TrainError> {
        let FoundSamples {
            mut samples,
            mut base,
            rollouts,
            rollout_base,
            ..
        } = self.collect().await?;
        let shared = Arc::clone(&self.context.shared);
        let rl = &shared.config.rl;
        let forced = why != BatchReason::Due;
        if forced && self.has_made_all().await? {
            let most = rl.max_steps;
            let why = format!("rl.max_steps is {most}, and so many are made: 0 is no bound");
            return Err(TrainError::NotTaken { why });
        }
        if let Some(of) = rollout_base
            && let Some(next) = self.rollouts(&rollouts, &of, why).await?
        {
            return Ok(next);
        }
        let may_begin = forced || (samples.may_be_due(rl, now_ms()) && self.may_begin().await?);
        if !may_begin {
            return Ok(NextAction::Nothing);
        }
        if !samples.are_none() {
            // Before the teacher is asked, who needs the same.
            self.context.can_test().await?;
        }
        if !samples.unhinted.is_empty() && self.may_teach(why) {
            for turn in samples.unhinted.iter().take(MOST_AT_ONCE) {
                self.hint(turn.id).await?;
            }
            FoundSamples { samples, base, .. } = self.collect().await?;
        }
        // What it is to be answered with comes first, so that a step has both.
        let room = limit(rl, why).saturating_sub(samples.answered.len());
        let ids = self.next_unanswered(&samples, room.min(TAUGHT_AT_ONCE));
        if !ids.is_empty() && self.may_teach(why) {
            return Ok(NextAction::Teach(ids));
        }
        match base {
            Some(base) if forced || samples.are_due(rl, now_ms()) => {
                self.step(samples, base, why).await
            }
            Some(_) | None => Ok(NextAction::Nothing),
        }
    }

    async fn step(
        &mut self,
        samples: Samples,
        base: BaseModel,
        why: BatchReason,
    ) -> Result<NextAction, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let (rl, agent) = (&shared.config.rl, self.agent);
        let limit = limit(rl, why);
        let (again, unknown) = self.again(&base, samples.answered.len().min(limit)).await?;
        if let Some(id) = unknown
            && self.may_teach(why)
        {
            return Ok(NextAction::Teach(vec![id]));
        }
        shared.status.window(agent, now_ms());
        let batch = batch::assemble(&shared, agent, &samples, again, limit).await?;
        for (id, why) in &batch.spent {
            shared.spend(*id, why).await?;
        }
        if why == BatchReason::Due && !batch.spent.is_empty() {
            // What was spent may have been what made the batch full.
            return Ok(NextAction::Again);
        }
        if batch.is_empty() {
            return Ok(NextAction::Nothing);
        }
        self.completed(base, batch, why).await
    }

    async fn completed(
        &mut self,
        base: BaseModel,
        batch: Batch,
        why: BatchReason,
    ) -> Result<NextAction, TrainError> {
        let held = self.held(batch).await?;
        let scored = self.scored(held, why).await?;
        Ok(if scored.is_empty() {
            NextAction::Again
        } else {
            NextAction::Step(base, scored)
        })
    }

    /// Has the teacher answer a turn; false where it failed at this one, which is tried again after a while. While the
    /// judge, who looks at its replies, does not answer, it waits.
    pub(super) async fn teach(mut self, id: TurnId) -> Result<bool, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let policy = Arc::clone(&self.context.policy);
        shared.status.phase(Phase::Teaching {
            agent: self.agent.clone(),
            since_ms: now_ms(),
        });
        let span = tracing::info_span!("teach", agent = %self.agent, turn = %id);
        let memory = &mut self.context.agent(self.agent).teacher;
        let taught = teacher::teach(&shared, &policy, memory, id);
        let taught = taught.instrument(span).await;
        self.answered(id, taught)
    }

    fn answered(&mut self, id: TurnId, came: Result<(), TeachError>) -> Result<bool, TrainError> {
        match came {
            Ok(()) => Ok(true),
            Err(TeachError::Judge(failed)) => {
                self.context.agent(self.agent).teacher.rests();
                self.context.shared.status.judge_failed(&failed);
                Ok(true)
            }
            Err(TeachError::Server(error)) => Err(self.context.no_teacher(&error)),
            Err(TeachError::Turn(error)) => {
                tracing::warn!(turn = %id, %error, "not answered by the teacher, who answers others: tried again");
                Ok(false)
            }
            Err(TeachError::Log(error)) => Err(error.into()),
        }
    }

    /// Whether a turn may be put to the teacher: both it and the judge answer. Who asked for a step wants to hear why not.
    fn may_teach(&mut self, why: BatchReason) -> bool {
        if self.context.agent(self.agent).teacher.is_resting() {
            return false;
        }
        match why {
            BatchReason::Due => !self.context.teacher_rests(),
            BatchReason::AskedFor { may_teach } => may_teach,
        }
    }

    /// Returns at most `n` turns for the teacher: those with the fewest failures first, then the oldest.
    fn next_unanswered(&mut self, samples: &Samples, n: usize) -> Vec<TurnId> {
        let memory = &self.context.agent(self.agent).teacher;
        let mut ids: Vec<TurnId> = samples.unanswered.iter().map(|turn| turn.id).collect();
        ids.sort_by_key(|id| memory.n_failures(*id));
        ids.truncate(n);
        ids
    }

    pub(super) async fn held(&mut self, batch: Batch) -> Result<Batch, TrainError> {
        if self.context.shared.config.rl.anchor <= 0.0 {
            return Ok(batch);
        }
        let (n_redo, n_own) = batch.counts();
        let n = (ANCHORS_A_SAMPLE * (n_redo + n_own)).min(MOST_ANCHORS);
        let policy = Arc::clone(&self.context.policy);
        let memory = &mut self.context.agent(self.agent).teacher;
        match memory.anchors(&policy, n).await {
            Ok(anchors) => Ok(batch.held_at(anchors)),
            Err(error) => Err(self.context.no_teacher(&error)),
        }
    }

    async fn collect(&mut self) -> Result<FoundSamples, TrainError> {
        let agent = self.agent;
        let shared = Arc::clone(&self.context.shared);
        let state = self.context.agent(agent);
        let rl = &shared.config.rl;
        state.teacher.is_told(teacher::wishes(&shared, agent));
        let teaching = state.teacher.teaching(rl);
        let found = batch::collect(&shared, &mut state.seen, agent, teaching).await?;
        let not_taught = state.teacher.targets.n_declined();
        let mut counts = found.samples.counts();
        // Turns of a group of which a rollout is missing cannot be trained on yet.
        let complete = complete_groups(&shared, agent, &found.rollouts)
            .await?
            .groups;
        counts.binary_rl += complete
            .iter()
            .map(|group| group.steps.len())
            .sum::<usize>();
        shared.status.counts(agent, counts, not_taught);
        Ok(found)
    }

    /// As many samples again that earlier steps had as are new, the least used first; and where the teacher has to
    /// answer one again, as after a restart, its turn.
    async fn again(
        &mut self,
        base: &BaseModel,
        n_new: usize,
    ) -> Result<(Vec<Sample>, Option<TurnId>), TrainError> {
        let mut again = Vec::new();
        if n_new == 0 {
            return Ok((again, None));
        }
        let used = self.context.used(self.agent, base).await?;
        let targets = &self.context.agent(self.agent).teacher.targets;
        for turn in used {
            if again.len() >= n_new {
                break;
            }
            if !targets.knows(&turn) {
                return Ok((again, Some(turn.id)));
            }
            if let Some(target) = targets.target(&turn) {
                again.push(Sample::again(turn, target));
            }
        }
        Ok((again, None))
    }

    async fn hint(&mut self, id: TurnId) -> Result<(), TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let policy = Arc::clone(&self.context.policy);
        let memory = &mut self.context.agent(self.agent).teacher;
        let hinted = teacher::hint(&shared, &policy, memory, id).await;
        self.answered(id, hinted).map(|_| ())
    }
}

fn limit(rl: &RlConfig, why: BatchReason) -> usize {
    match why {
        BatchReason::Due => rl.batch_size,
        BatchReason::AskedFor { .. } => rl.batch_size.max(MOST_AT_ONCE),
    }
}

// === impl NextBatch ===

impl NextBatch<'_> {
    /// Whether a step of an agent that is due may begin now; what it waits for is shown.
    pub(super) async fn may_begin(&mut self) -> Result<bool, LogError> {
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
            // Nothing tests what would serve, or the owner wants to decide: somebody has to ask for it.
            Some(Phase::AwaitingRequest)
        } else if shared.may_cost(agent).await? {
            None
        } else {
            Some(Phase::AwaitingWindow)
        };
        let may = waits_for.is_none();
        if let Some(phase) = waits_for {
            self.context.shared.status.waits_for(phase);
        }
        Ok(may)
    }

    /// Whether an agent has made as many steps as `rl.max_steps` gives it. Those that the gate declined are in no weights.
    pub(super) async fn has_made_all(&self) -> Result<bool, LogError> {
        let shared = &self.context.shared;
        let most = shared.config.rl.max_steps;
        if most == 0 {
            return Ok(false);
        }
        let steps = shared.steps(self.agent).await?;
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
        let series = Series::from_steps(&shared.steps(agent).await?);
        let Some(last) = series.given_up() else {
            return Ok(None);
        };
        let wishes = shared.wish_ids(agent);
        let rest = series.rest(now_ms(), shared.n_judged(agent).await?, &wishes);
        Ok(rest.map(|rest| rests(&last.why, rest.until_ms)))
    }

    /// Returns what is to be done about rollouts, or `None` if no step of them is due or can be made.
    pub(super) async fn rollouts(
        &mut self,
        turns: &RolloutTurns,
        base: &BaseModel,
        why: BatchReason,
    ) -> Result<Option<NextAction>, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let (rl, agent) = (&shared.config.rl, self.agent);
        let mut found = complete_groups(&shared, agent, turns).await?;
        for (id, why) in found.spent.drain(..) {
            shared.spend(id, why).await?;
        }
        let limit = match why {
            BatchReason::Due => rl.rollouts.batch_size,
            BatchReason::AskedFor { .. } => MOST_ROLLOUTS,
        };
        if found.groups.is_empty() || (why == BatchReason::Due && !self.may_be_due(&found).await?) {
            return Ok(None);
        }
        self.context.can_test().await?;
        let batch = self
            .context
            .rollout_batch(agent, base, found, limit)
            .await?;
        for (id, why) in &batch.spent {
            shared.spend(*id, why).await?;
        }
        if !batch.spent.is_empty() {
            // What was excluded is not shown as ready.
            self.collect().await?;
        }
        if batch.is_empty() {
            return Ok((why == BatchReason::Due).then_some(NextAction::Again));
        }
        shared.status.window(agent, now_ms());
        let step = self.completed(base.clone(), batch, why);
        step.await.map(Some)
    }

    /// Returns whether a step is due and may begin. A runner that is there asks for its steps itself.
    async fn may_be_due(&mut self, found: &FoundGroups) -> Result<bool, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        if !are_due(&found.groups, &shared.config.rl)
            || shared.rollout_requests.has_runner(self.agent)
        {
            return Ok(false);
        }
        if shared.advantages.is_some() && self.context.teacher_rests() {
            return Ok(false);
        }
        Ok(self.may_begin().await?)
    }

    /// Returns the batch with the external teacher's advantages, without the turns that it fails at, which are set
    /// aside.
    ///
    /// # Errors
    /// Returns [`TrainError::NoTeacher`] while it cannot be reached; the turns wait.
    pub(super) async fn scored(
        &mut self,
        batch: Batch,
        why: BatchReason,
    ) -> Result<Batch, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let Some(teacher) = shared.external_teacher() else {
            return Ok(batch);
        };
        if why == BatchReason::Due && self.context.teacher_rests() {
            let why = "it did not answer, and is asked again after a minute".to_owned();
            return Err(TrainError::NoTeacher { why });
        }
        shared.status.phase(Phase::Teaching {
            agent: self.agent.clone(),
            since_ms: now_ms(),
        });
        let before = std::mem::take(&mut self.context.agent(self.agent).pulls);
        let (mut pulls, mut asked) = (BTreeMap::new(), Vec::new());
        for turn in batch.to_be_scored() {
            match before.get(&turn.id) {
                Some(known) => drop(pulls.insert(turn.id, Arc::clone(known))),
                None => asked.push(Arc::clone(turn)),
            }
        }
        let answers = asked.into_iter().map(|turn| async move {
            let reply = turn.reply.as_ref().map(Message::text).unwrap_or_default();
            match &turn.tokens {
                Some(tokens) => (turn.id, teacher.pulls(tokens, &reply).await),
                // The trainer gets nothing of the batch either.
                None => (turn.id, Ok(Arc::default())),
            }
        });
        let mut answers = stream::iter(answers).buffered(AT_ONCE);
        let (mut failed, mut away) = (Vec::new(), None);
        while let Some((id, answer)) = answers.next().await {
            match answer {
                Ok(pull) => drop(pulls.insert(id, pull)),
                Err(NotScored::Turn(why)) => {
                    tracing::warn!(turn = %id, why, "the external teacher cannot score it");
                    shared.spend(id, ExcludeReason::NotScored).await?;
                    failed.push(id);
                }
                Err(NotScored::Away(why)) => away = Some(why),
            }
        }
        let scored = batch.without(&failed).with_deltas(&pulls);
        self.context.agent(self.agent).pulls = pulls;
        match away {
            Some(why) => Err(self.context.no_external_teacher(why)),
            None => Ok(scored),
        }
    }
}

fn are_due(groups: &[RolloutGroup], rl: &RlConfig) -> bool {
    let n: usize = groups.iter().map(RolloutGroup::n_rollouts).sum();
    let oldest = groups.iter().filter_map(RolloutGroup::ended_ms).min();
    let oldest = oldest.map(|ms| Duration::from_millis(now_ms().abs_diff(ms)));
    n >= rl.rollouts.batch_size || oldest.is_some_and(|age| age >= rl.max_wait.0)
}

const AT_ONCE: usize = 4;
