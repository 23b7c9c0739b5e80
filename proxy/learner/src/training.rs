//! The training task: looks for batches, waits for a window, makes steps, swaps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::TrainingBackend;
use metaclaw_turns::LogError;
use tokio::sync::{mpsc, oneshot};

use crate::{
    agent::AgentState,
    batch::Baselines,
    collect,
    learner::TrainError,
    shared::Shared,
    status::{Phase, StepReport},
    window::{Window, window},
};

/// The longest pause between two looks: idle time passes without anything happening.
const TICK: Duration = Duration::from_secs(20);
/// The pause after a look that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(3);
/// Samples of each method in a step that was asked for: one call must end before its deadline.
const MOST_AT_ONCE: usize = 64;

/// A step that was asked for.
#[derive(Debug)]
pub(crate) struct TrainNow {
    /// For whom; none: everyone.
    pub(crate) agent: Option<AgentId>,
    pub(crate) answer: oneshot::Sender<Result<Vec<StepReport>, TrainError>>,
}

/// The task's own state.
#[derive(Debug)]
pub(crate) struct Training {
    pub(crate) shared: Arc<Shared>,
    pub(crate) backend: Arc<dyn TrainingBackend>,
    pub(crate) agents: BTreeMap<AgentId, AgentState>,
    /// Whether steps that an earlier process left open are settled.
    pub(crate) recovered: bool,
    /// Whether this look ended in waiting for something, which the board shows.
    waits: bool,
}

// === impl Training ===

impl Training {
    pub(crate) fn new(shared: Arc<Shared>, backend: Arc<dyn TrainingBackend>) -> Self {
        Self {
            shared,
            backend,
            agents: BTreeMap::new(),
            recovered: false,
            waits: false,
        }
    }

    /// Runs until the log closes or the learner ends; then at once, wherever it stands: a step that was begun
    /// is settled at the next start.
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<TrainNow>) {
        let cancel = self.shared.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.work(&mut asked) => {}
        }
    }

    async fn work(&mut self, asked: &mut mpsc::Receiver<TrainNow>) {
        loop {
            let pause = match self.look().await {
                Ok(()) => TICK,
                Err(TrainError::Log(LogError::Closed)) => return,
                Err(error) => {
                    tracing::debug!(%error, "no step for now");
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                Some(now) = asked.recv() => {
                    let result = self.train_now(now.agent).await;
                    // Whoever asked may have gone.
                    let _ = now.answer.send(result);
                }
            }
        }
    }

    /// One look at what there is to do.
    async fn look(&mut self) -> Result<(), TrainError> {
        self.waits = false;
        if !self.recovered {
            self.recover().await?;
        }
        let mut failed = None;
        for agent in self.agents_in_log().await? {
            match self.all_due(&agent).await {
                Ok(()) => {}
                Err(error) if error.concerns_everyone() => return Err(error),
                // One agent's trouble keeps no other from learning.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if !self.waits {
            self.shared.board.phase(Phase::Collecting);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every step of an agent that is due: a full batch may stand behind the one just made.
    async fn all_due(&mut self, agent: &AgentId) -> Result<(), TrainError> {
        while self.pass(agent, false).await?.is_some() {}
        Ok(())
    }

    async fn agents_in_log(&self) -> Result<Vec<AgentId>, LogError> {
        self.shared.persist(|| self.shared.log.agents()).await
    }

    /// Shows what training waits for.
    pub(crate) fn waits_for(&mut self, phase: Phase) {
        self.waits = true;
        self.shared.board.phase(phase);
    }

    async fn train_now(&mut self, agent: Option<AgentId>) -> Result<Vec<StepReport>, TrainError> {
        if !self.recovered {
            self.recover().await?;
        }
        let agents = match agent {
            Some(agent) => vec![agent],
            None => self.agents_in_log().await?,
        };
        let mut reports = Vec::new();
        for agent in agents {
            reports.extend(self.pass(&agent, true).await?);
        }
        Ok(reports)
    }

    /// Makes a step for an agent if one is due (or, when forced, if there is anything to train on).
    async fn pass(
        &mut self,
        agent: &AgentId,
        forced: bool,
    ) -> Result<Option<StepReport>, TrainError> {
        let shared = Arc::clone(&self.shared);
        let seen = &mut self.agents.entry(agent.clone()).or_default().seen;
        let (samples, base) = collect::samples(&shared, seen, agent).await?;
        shared.board.counts(agent, samples.counts());
        let rl = &shared.config.rl;
        let due = forced || (samples.are_due(rl, now_ms()) && self.may_begin(agent).await?);
        let Some(base) = base.filter(|_| due) else {
            return Ok(None);
        };
        shared.board.window(agent, now_ms());
        let baselines = if rl.method.binary_rl {
            collect::baselines(&shared, agent).await?
        } else {
            Baselines::default()
        };
        let limit = if forced {
            rl.batch_size.max(MOST_AT_ONCE)
        } else {
            rl.batch_size
        };
        let batch = samples.batch(rl, baselines, limit);
        for (id, why) in &batch.spent {
            shared.spend(*id, why).await?;
        }
        if batch.is_empty() || (!forced && !batch.spent.is_empty()) {
            // What was spent may have been what made the batch full: look again.
            shared.wake.notify_one();
            return Ok(None);
        }
        self.step(agent, base, &batch).await
    }

    /// Whether neither the user nor an earlier refusal stands in the way.
    async fn may_begin(&mut self, agent: &AgentId) -> Result<bool, LogError> {
        if let Some(rest) = self.agents.get(agent).and_then(AgentState::resting) {
            let (why, until_ms) = (rest.why.clone(), rest.until_ms);
            self.waits_for(Phase::Resting {
                agent: agent.clone(),
                why,
                until_ms,
            });
            return Ok(false);
        }
        let config = &self.shared.config;
        let idle = Duration::from_secs(60 * config.scheduler.idle_minutes);
        match window(config.mode_of(agent), self.quiet().await?, idle) {
            Window::Open => Ok(true),
            Window::Never => Ok(false),
            Window::InUse(left) => {
                self.waits_for(Phase::WaitingForIdle {
                    seconds: left.as_secs(),
                });
                Ok(false)
            }
        }
    }

    /// How long ago the last main turn of any agent ended.
    async fn quiet(&self) -> Result<Option<Duration>, LogError> {
        let last = self.shared.persist(|| self.shared.log.last_main_ms());
        let last = last.await?;
        Ok(last.map(|ms| Duration::from_millis(now_ms().saturating_sub(ms))))
    }
}
