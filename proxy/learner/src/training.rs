//! The training task: looks for batches, makes steps where the mode lets it, swaps.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_turns::LogError;
use tokio::sync::{mpsc, oneshot};

use crate::{
    batch::Baselines,
    collect,
    config::Mode,
    context::TrainingContext,
    error::TrainError,
    judging, recovery,
    status::{Phase, StepReport},
    transaction::StepTransaction,
};

/// The longest pause between two looks: a batch may be due by its age alone.
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
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<TrainNow>) {
        let cancel = self.context.shared.cancel.clone();
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
                () = self.context.shared.wake.notified() => {}
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
            self.context.shared.board.phase(Phase::Collecting);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every step of an agent that is due: a full batch may stand behind the one just made.
    async fn all_due(&mut self, agent: &AgentId) -> Result<(), TrainError> {
        while self.pass(agent, false).await?.is_some() {}
        Ok(())
    }

    async fn agents_in_log(&self) -> Result<Vec<AgentId>, LogError> {
        let shared = &self.context.shared;
        shared.persist(|| shared.log.agents()).await
    }

    /// Settles what an earlier process left open, once.
    async fn recover(&mut self) -> Result<(), TrainError> {
        if !self.is_recovered {
            recovery::recover(&mut self.context).await?;
            self.is_recovered = true;
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
        let mut reports = Vec::new();
        for agent in agents {
            let shared = &self.context.shared;
            if shared.trains_when_asked(&agent) {
                judging::judge_now(shared, &agent).await?;
            }
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
        let shared = Arc::clone(&self.context.shared);
        let seen = &mut self.context.agent(agent).seen;
        let (samples, base) = collect::samples(&shared, seen, agent).await?;
        shared.board.counts(agent, samples.counts());
        let rl = &shared.config.rl;
        let due = forced || (samples.are_due(rl, now_ms()) && self.may_begin(agent));
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
        let step = StepTransaction::new(&mut self.context, agent).await?;
        step.run(base, &batch).await
    }

    /// Whether a step may begin without being asked for.
    fn may_begin(&mut self, agent: &AgentId) -> bool {
        if (self.context.shared.is_off)(agent) {
            return false;
        }
        if let Some(rest) = self.context.agent(agent).resting() {
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
