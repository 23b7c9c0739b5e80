//! The training task: looks for batches, makes steps where the mode lets it, swaps.

mod next;

use std::time::Duration;

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::LogError;
use tokio::sync::{mpsc, oneshot};

use self::next::NextBatch;
use crate::{
    config::Mode,
    error::TrainError,
    judging,
    preview::{StepPreview, TurnPreview},
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
    /// What it would use of one turn of an agent's.
    Turn(AgentId, TurnId, Reply<TurnPreview>),
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
            TrainingRequest::Turn(agent, id, answer) => {
                let shown = step::turn_preview(&mut self.context, &agent, id).await;
                drop(answer.send(shown.map(|it| vec![it])));
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
        let next = NextBatch::new(&mut self.context, agent);
        let Some((base, batch)) = next.made(forced).await? else {
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
                // What no turn is behind is an anchor, and the server fails at it.
                Ended::SetAside(turns) if turns.is_empty() => {
                    tracing::warn!(%agent, "the training server cannot train on what holds the weights (rl.anchor): the step is made without");
                    batches.push(batch.without_anchors());
                }
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
}
