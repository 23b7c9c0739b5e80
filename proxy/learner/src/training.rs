//! The training task: looks for batches, makes steps where the mode lets it, swaps.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_turns::LogError;
use tokio::sync::{mpsc, oneshot};

use crate::{
    config::Mode,
    error::TrainError,
    gate::Series,
    judging,
    lineage::BaseModel,
    preview::StepPreview,
    samples::{self, Baselines, Batch, MOST_AT_ONCE},
    status::{Phase, StepReport},
    step::{self, Ended, StepTransaction, TrainingContext},
};

/// The longest pause between two looks: a batch may be due by its age alone.
const TICK: Duration = Duration::from_secs(20);
/// The pause after a look that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(3);

/// What the training task is asked. For whom; none: everyone.
#[derive(Debug)]
pub(crate) enum TrainingRequest {
    /// A step now.
    Step(Option<AgentId>, Reply<StepReport>),
    /// What that would be.
    DryRun(Option<AgentId>, Reply<StepPreview>),
}

/// Who asked, and may have gone.
pub(crate) type Reply<T> = oneshot::Sender<Result<Vec<T>, TrainError>>;

/// The training task.
#[derive(Debug)]
pub(crate) struct Training {
    context: TrainingContext,
    /// Whether steps that an earlier process left open are settled.
    is_recovered: bool,
}

// === impl Training ===

impl Training {
    pub(crate) fn new(context: TrainingContext) -> Self {
        Self {
            context,
            is_recovered: false,
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
                Ok(()) if self.is_recovered => TICK,
                Ok(()) => AFTER_FAILURE,
                Err(TrainError::Log(LogError::Closed)) => return,
                Err(error) => {
                    tracing::debug!(%error, "no step for now");
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                () = self.context.shared.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                Some(request) = asked.recv() => self.answer(request).await,
            }
        }
    }

    async fn answer(&mut self, request: TrainingRequest) {
        // Nobody listening is no error.
        match request {
            TrainingRequest::Step(agent, answer) => drop(answer.send(self.train_now(agent).await)),
            TrainingRequest::DryRun(agent, answer) => drop(answer.send(self.dry_run(agent).await)),
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

    /// One look at what there is to do.
    async fn look(&mut self) -> Result<(), TrainError> {
        self.context.waits = false;
        self.recover().await?;
        let mut failed = None;
        for agent in self.agents_in_log().await? {
            match self.all_due(&agent).await {
                Ok(()) => {}
                Err(error) if error.concerns_everyone() => return Err(error),
                // One agent's trouble keeps no other from learning.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if !self.context.waits {
            self.context.shared.status.phase(Phase::Collecting);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every step of an agent that is due: a full batch may stand behind the one just made.
    async fn all_due(&mut self, agent: &AgentId) -> Result<(), TrainError> {
        while !self.pass(agent, false).await?.is_empty() {}
        Ok(())
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

    async fn train_now(&mut self, agent: Option<AgentId>) -> Result<Vec<StepReport>, TrainError> {
        self.recover().await?;
        let agents = match agent {
            Some(agent) => vec![agent],
            None => self.agents_in_log().await?,
        };
        let is_off = &self.context.shared.is_off;
        let agents: Vec<AgentId> = agents.into_iter().filter(|it| !is_off(it)).collect();
        let (mut reports, mut failed) = (Vec::new(), None);
        for agent in agents {
            let shared = &self.context.shared;
            // Else they wait until its owner is away.
            if shared.config.mode_of(&agent) == Mode::Auto {
                judging::judge_now(shared, &agent).await?;
            }
            match self.pass(&agent, true).await {
                Ok(made) => reports.extend(made),
                Err(error) if error.concerns_everyone() => return Err(error),
                Err(error) => {
                    tracing::warn!(%agent, %error, "no step");
                    failed = failed.or(Some(error));
                }
            }
        }
        match failed {
            Some(error) if reports.is_empty() => Err(error),
            Some(_) | None => Ok(reports),
        }
    }

    /// Makes a step for an agent if one is due (or, when forced, if there is anything to train on). Samples that are
    /// at fault are set aside, and the rest trained: where that takes several steps, several.
    async fn pass(&mut self, agent: &AgentId, forced: bool) -> Result<Vec<StepReport>, TrainError> {
        let Some((base, batch)) = self.batch(agent, forced).await? else {
            return Ok(Vec::new());
        };
        let mut reports = Vec::new();
        let mut batches = vec![batch];
        while let Some(batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            let step = StepTransaction::new(&mut self.context, agent).await?;
            match step.run(&base, &batch).await? {
                Ended::Made(report) => reports.push(*report),
                Ended::SetAside(turns) => batches.push(batch.without(&turns)),
                Ended::Elsewhere => batches.push(batch),
                Ended::Halves => {
                    let [first, second] = batch.halves();
                    batches.extend([second, first]);
                }
            }
        }
        Ok(reports)
    }

    /// What an agent's next step is of, if one is due, and the base model that it was sampled from.
    async fn batch(
        &mut self,
        agent: &AgentId,
        forced: bool,
    ) -> Result<Option<(BaseModel, Batch)>, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let seen = &mut self.context.agent(agent).seen;
        let (samples, base) = samples::collect(&shared, seen, agent).await?;
        shared.status.counts(agent, samples.counts());
        let rl = &shared.config.rl;
        let due = forced || (samples.are_due(rl, now_ms()) && self.may_begin(agent).await?);
        let Some(base) = base.filter(|_| due) else {
            return Ok(None);
        };
        shared.status.window(agent, now_ms());
        let baselines = if rl.method.binary_rl {
            samples::baselines(&shared, agent).await?
        } else {
            Baselines::default()
        };
        let limit = if forced {
            rl.batch_size.max(MOST_AT_ONCE)
        } else {
            rl.batch_size
        };
        let batch = Batch::new(&samples, rl, baselines, limit);
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

    /// Whether a step may begin without being asked for.
    /// Whether a step of an agent that is due may begin now; what it waits for is shown.
    async fn may_begin(&mut self, agent: &AgentId) -> Result<bool, LogError> {
        let shared = Arc::clone(&self.context.shared);
        if (shared.is_off)(agent) || shared.config.mode_of(agent) == Mode::SkillsOnly {
            return Ok(false);
        }
        let waits_for = if let Some(phase) = self.resting(agent).await? {
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

    /// Whether no step of an agent is made for a while: the training server refused one, or the gate declined several adapters in
    /// a row.
    async fn resting(&mut self, agent: &AgentId) -> Result<Option<Phase>, LogError> {
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
