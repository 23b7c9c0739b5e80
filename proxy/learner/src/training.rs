//! The training task: looks for batches, makes steps where the mode lets it, swaps.
//!
//! One look does little: of each agent at most one step, and a few turns are put to the teacher, whose turns and whose steps
//! alternate. So what one agent has to do keeps no other's step waiting for longer than these turns' answers, or one step.
//!
//! What the training task is asked, and a step that was asked for while it is made.
//!
//! What the training task is asked from outside: a step now, in pieces between which others have their turn, and what one
//! would be.
//!
//! Makes the same steps from what is there, without waiting for more, for a replay.

mod next;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::future::join_all;
use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_turns::LogError;
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, field::Empty};

use self::next::{BatchReason, NextAction, NextBatch, TAUGHT_AT_ONCE};
use crate::{
    batch::MOST_AT_ONCE,
    config::Mode,
    error::TrainError,
    judging,
    lineage::BaseModel,
    sample::Batch,
    status::{Phase, StepReport},
    step::{self, StepEnd, StepPreview, TrainingContext, TurnPreview},
    teacher,
};

/// The longest pause between two looks: a batch may be due by its age alone.
const TICK: Duration = Duration::from_secs(20);
const AFTER_FAILURE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Training {
    context: TrainingContext,
    is_recovered: bool,
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
            let pause = match self.look_once().await {
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
    async fn look_once(&mut self) -> Result<Duration, TrainError> {
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
            if self.wanted.as_ref().is_some_and(|w| w.is_for(&agent)) {
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
        shared.agents().await
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

    pub(super) async fn answer(&mut self, request: TrainingRequest) {
        self.context.ask_at_once();
        // Nobody listening is no error.
        match request {
            TrainingRequest::Step(agent, answer) => match self.wanted(agent).await {
                Ok(agents) => {
                    self.wanted = Some(WantedStep::new(agents, answer));
                    self.context.shared.wake.notify_one();
                }
                Err(error) => drop(answer.send(Err(error))),
            },
            TrainingRequest::DryRun(agent, answer) => drop(answer.send(self.dry_run(agent).await)),
            TrainingRequest::Turn(agent, id, answer) => {
                let shown = step::turn_preview(&mut self.context, &agent, id).await;
                drop(answer.send(shown.map(|shown| vec![shown])));
            }
        }
    }

    async fn dry_run(&mut self, agent: Option<AgentId>) -> Result<Vec<StepPreview>, TrainError> {
        let agents = match agent {
            Some(agent) => vec![agent],
            None => self.agents_in_log().await?,
        };
        let mut previews = Vec::new();
        for agent in agents {
            previews.extend(step::dry_run(&mut self.context, &agent).await?);
        }
        Ok(previews)
    }

    /// For whom a step that is asked for is to be made; what waits of them for a verdict is judged.
    async fn wanted(&mut self, agent: Option<AgentId>) -> Result<Vec<AgentId>, TrainError> {
        let mut agents = match agent {
            Some(agent) => vec![agent],
            None => self.agents_in_log().await?,
        };
        let shared = &self.context.shared;
        agents.retain(|agent| !(shared.is_off)(agent));
        for agent in &agents {
            // Else they wait until its owner is away.
            if shared.config.mode_of(agent) == Mode::Auto {
                judging::judge_now(shared, agent).await?;
            }
        }
        Ok(agents)
    }

    pub(super) async fn go_on_with_wanted(&mut self) {
        let Some(mut wanted) = self.wanted.take() else {
            return;
        };
        let Some(agent) = wanted.agent().cloned() else {
            return wanted.end();
        };
        match self.piece(&agent, wanted.may_teach()).await {
            Ok(StepPiece::Taught(n)) => wanted.taught(n),
            Ok(StepPiece::Made(reports)) => wanted.made(reports),
            Err(error) if error.concerns_everyone() => return wanted.end_with(error),
            Err(error) => wanted.failed(error),
        }
        if wanted.agent().is_none() {
            return wanted.end();
        }
        self.wanted = Some(wanted);
        self.context.shared.wake.notify_one();
    }

    async fn piece(&mut self, agent: &AgentId, may_teach: bool) -> Result<StepPiece, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let Some(_lock) = shared.training.try_lock(agent) else {
            let agent = agent.clone();
            return Err(TrainError::DataSet { agent });
        };
        let next = self
            .next_batch(agent)
            .next(BatchReason::AskedFor { may_teach });
        Ok(match next.await? {
            NextAction::Teach(ids) => {
                let n = ids.len();
                let turns = ids.into_iter().map(|id| (agent.clone(), id));
                self.teach(turns.collect()).await?;
                StepPiece::Taught(n)
            }
            NextAction::Step(base, batch) => {
                StepPiece::Made(self.steps(agent, &base, batch).await?)
            }
            NextAction::Nothing | NextAction::Again => StepPiece::Made(Vec::new()),
        })
    }

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

    pub(crate) async fn close(&mut self) {
        self.context.close().await;
    }

    pub(crate) fn n_left(&self, agent: &AgentId) -> usize {
        let notes = self.context.shared.status.read();
        let counts = notes.agents.get(agent).map(|known| known.counts);
        counts.map_or(0, |known| known.redo + known.unanswered + known.binary_rl)
    }
}

/// What the training task is asked. For whom; none: everyone.
#[derive(Debug)]
pub(crate) enum TrainingRequest {
    Step(Option<AgentId>, TrainingReply<StepReport>),
    DryRun(Option<AgentId>, TrainingReply<StepPreview>),
    /// What it would use of one turn of an agent's.
    Turn(AgentId, TurnId, TrainingReply<TurnPreview>),
}

/// Who asked, and may have gone.
pub(crate) type TrainingReply<T> = oneshot::Sender<Result<Vec<T>, TrainError>>;

#[derive(Debug)]
pub(super) struct WantedStep {
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

    pub(super) fn agent(&self) -> Option<&AgentId> {
        self.agents.front()
    }

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

    pub(super) fn made(&mut self, reports: Vec<StepReport>) {
        self.reports.extend(reports);
        self.go_on();
    }

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

enum StepPiece {
    /// The teacher was asked about so many turns.
    Taught(usize),
    /// It is made, or there was nothing to make one of.
    Made(Vec<StepReport>),
}
