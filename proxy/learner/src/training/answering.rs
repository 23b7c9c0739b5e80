//! What the training task is asked from outside: a step now, in pieces between which others have their turn, and what one
//! would be.

use std::sync::Arc;

use metaclaw_chat::AgentId;

use super::{
    Training,
    next::{BatchReason, NextAction},
    request::{TrainingRequest, WantedStep},
};
use crate::{
    config::Mode,
    error::TrainError,
    judging,
    status::StepReport,
    step::{self, StepPreview},
};

/// A piece of the making of a step.
enum StepPiece {
    /// The teacher was asked about so many turns.
    Taught(usize),
    /// It is made, or there was nothing to make one of.
    Made(Vec<StepReport>),
}

// === impl Training ===

impl Training {
    /// Does what was asked, but for a step, which is made in pieces.
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

    /// Does the next piece of the step that was asked for, if one was.
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
}
