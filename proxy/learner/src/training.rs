//! The training task: looks for batches, makes steps where the mode lets it, swaps.
//!
//! One look does little: of each agent at most one step, and a few turns are put to the teacher, whose turns and whose steps
//! alternate. So what one agent has to do keeps no other's step waiting for longer than these turns' answers, or one step.

mod answering;
mod beginning;
mod next;
mod replaying;
mod request;
mod rollouts;
mod scored;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_turns::LogError;
use tokio::sync::mpsc;

pub(crate) use self::request::{TrainingReply, TrainingRequest};
use self::{
    next::{BatchReason, NextAction, NextBatch, TAUGHT_AT_ONCE},
    request::WantedStep,
};
use tracing::{Instrument as _, field::Empty};

use crate::{
    error::TrainError,
    lineage::BaseModel,
    sample::Batch,
    status::{Phase, StepReport},
    step::{self, StepEnd, TrainingContext},
    teacher,
};

/// The longest pause between two looks: a batch may be due by its age alone.
const TICK: Duration = Duration::from_secs(20);
/// The pause after a look that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Training {
    context: TrainingContext,
    /// Whether steps that an earlier process left open are settled.
    is_recovered: bool,
    /// A step that was asked for, while it is made.
    wanted: Option<WantedStep>,
    /// Whose turn was put to the teacher last.
    last_taught: Option<AgentId>,
}

// === impl Training ===

impl Training {
    pub(crate) fn new(context: TrainingContext) -> Self {
        Self {
            context,
            is_recovered: false,
            wanted: None,
            last_taught: None,
        }
    }

    /// Runs until the log closes or the learner ends; then at once, wherever it stands: a step that was begun
    /// is settled at the next start.
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<TrainingRequest>) {
        let cancel = self.context.shared.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.work(&mut asked) => {}
        }
    }

    async fn work(&mut self, asked: &mut mpsc::Receiver<TrainingRequest>) {
        loop {
            let pause = match self.look().await {
                Ok(pause) => pause,
                Err(TrainError::Log(LogError::Closed)) => return,
                Err(error) => {
                    tracing::debug!(%error, "no step for now");
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                biased;
                Some(request) = asked.recv(), if self.wanted.is_none() => self.answer(request).await,
                () = self.context.shared.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One look at what there is to do, and how long it may be until the next. Where there may be more to do at once, the
    /// task is woken.
    async fn look(&mut self) -> Result<Duration, TrainError> {
        self.context.shared.status.look_begins();
        if let Err(error) = self.recover().await {
            if let Some(wanted) = self.wanted.take() {
                wanted.end_with(error.clone());
            }
            return Err(error);
        }
        self.go_on_with_wanted().await;
        let mut pause = if self.is_recovered {
            TICK
        } else {
            AFTER_FAILURE
        };
        let (mut failed, mut unanswered) = (None, Vec::new());
        for agent in self.agents_in_log().await? {
            if self.wanted.as_ref().is_some_and(|it| it.is_for(&agent)) {
                continue;
            }
            let shared = Arc::clone(&self.context.shared);
            let Some(_lock) = shared.training.try_lock(&agent) else {
                continue;
            };
            match self.step_if_due(&agent).await {
                Ok(turns) => unanswered.push((agent, turns)),
                Err(error) if error.concerns_everyone() => return Err(error),
                // One agent's trouble keeps no other from learning.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match self.teach(self.next_taught(unanswered)).await {
            Ok(None) => {}
            Ok(Some(true)) => self.context.shared.wake.notify_one(),
            Ok(Some(false)) => pause = AFTER_FAILURE,
            Err(error) => failed = failed.or(Some(error)),
        }
        self.context.shared.status.look_ends();
        failed.map_or(Ok(pause), Err)
    }

    /// Makes a step for an agent if one is due; the turns that the teacher has to answer first, if there are any.
    async fn step_if_due(&mut self, agent: &AgentId) -> Result<Vec<TurnId>, TrainError> {
        // The next step starts from what serves.
        self.context.watch_verdicts(agent).await?;
        let next = self.next_batch(agent).next(BatchReason::Due).await?;
        match next {
            NextAction::Nothing => return Ok(Vec::new()),
            NextAction::Teach(ids) => return Ok(ids),
            NextAction::Again => {}
            // A step that fails wakes nobody: a server that refuses at once would be asked again at once.
            NextAction::Step(base, batch) => {
                self.steps(agent, &base, batch).await?;
            }
        }
        // A full batch may stand behind this one.
        self.context.shared.wake.notify_one();
        Ok(Vec::new())
    }

    /// Whose turns are put to the teacher: agents take turns.
    fn next_taught(&self, mut unanswered: Vec<(AgentId, Vec<TurnId>)>) -> Vec<(AgentId, TurnId)> {
        unanswered.sort();
        let last = self.last_taught.as_ref();
        let is_before = |(agent, _): &(AgentId, Vec<TurnId>)| Some(agent) <= last;
        let first = unanswered.partition_point(is_before);
        unanswered.rotate_left(first);
        let rounds = (0..TAUGHT_AT_ONCE).flat_map(|nth| {
            let nth = unanswered
                .iter()
                .map(move |(agent, ids)| (agent, ids.get(nth)));
            nth.filter_map(|(agent, id)| Some((agent.clone(), *id?)))
        });
        rounds.take(TAUGHT_AT_ONCE).collect()
    }

    /// Puts turns to the teacher; whether all went well, where there are any.
    async fn teach(&mut self, turns: Vec<(AgentId, TurnId)>) -> Result<Option<bool>, TrainError> {
        if let [(agent, _), _, ..] = turns.as_slice() {
            let agent = agent.clone();
            let since_ms = now_ms();
            let phase = Phase::Teaching { agent, since_ms };
            self.context.shared.status.phase(phase);
            self.draw_ahead(&turns).await;
        }
        let mut went_well = None;
        for (agent, id) in turns {
            let taught = self.next_batch(&agent).teach(id).await;
            self.last_taught = Some(agent);
            went_well = Some(taught? && went_well != Some(false));
        }
        Ok(went_well)
    }

    /// Has the teacher draw its replies to several turns at once.
    async fn draw_ahead(&mut self, turns: &[(AgentId, TurnId)]) {
        let shared = Arc::clone(&self.context.shared);
        let policy = Arc::clone(&self.context.policy);
        let asked = turns.iter().map(|(agent, id)| {
            let wishes = self.context.agent(agent).teacher.wishes();
            teacher::draw_ahead(&shared, &policy, *id, wishes.map(str::to_owned))
        });
        let asked: Vec<_> = asked.collect();
        for ((agent, _), drawn) in turns.iter().zip(join_all(asked).await) {
            if let Some(drawn) = drawn {
                self.context.agent(agent).teacher.drew(drawn);
            }
        }
    }

    fn next_batch<'a>(&'a mut self, agent: &'a AgentId) -> NextBatch<'a> {
        NextBatch::new(&mut self.context, agent)
    }

    async fn agents_in_log(&self) -> Result<Vec<AgentId>, LogError> {
        let shared = &self.context.shared;
        shared.persist(|| shared.log.agents()).await
    }

    /// Settles what an earlier process left open. An agent of which that cannot be done yet keeps no other waiting.
    async fn recover(&mut self) -> Result<(), TrainError> {
        if !self.is_recovered {
            self.is_recovered = step::recover(&mut self.context).await?;
        }
        Ok(())
    }

    /// Makes a step of a batch. Samples that are at fault are set aside, and the rest trained: where that takes several
    /// steps, several.
    async fn steps(
        &mut self,
        agent: &AgentId,
        base: &BaseModel,
        batch: Batch,
    ) -> Result<Vec<StepReport>, TrainError> {
        let mut reports = Vec::new();
        let mut batches = vec![batch];
        while let Some(batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            let site = self.context.site(agent).await?;
            // The plan fills in the rest.
            let span =
                tracing::info_span!("step", %agent, lineage = Empty, n = Empty, attempt = Empty);
            match step::run(site, base, &batch).instrument(span).await? {
                StepEnd::Made(report) => reports.push(*report),
                // What no turn is behind is an anchor, and the server fails at it.
                StepEnd::SetAside(turns) if turns.is_empty() => {
                    tracing::warn!(%agent, "the training server cannot train on what holds the weights (rl.anchor): the step is made without");
                    batches.push(batch.without_anchors());
                }
                StepEnd::SetAside(turns) => batches.push(batch.without(&turns)),
                StepEnd::Elsewhere => batches.push(batch),
                StepEnd::Halves => {
                    let [first, second] = batch.halves();
                    batches.extend([second, first]);
                }
            }
        }
        Ok(reports)
    }
}
