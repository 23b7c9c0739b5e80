//! The learner from outside: started, asked, ended.

use std::sync::Arc;

use metaclaw_chat::AgentId;
use metaclaw_turns::LogError;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Mode,
    judging, recover,
    shared::{Parts, Shared},
    status::{AgentStatus, LearnerStatus, Phase, StepReport},
    tokens,
    training::{TrainNow, Training},
};

/// Steps that may be asked for while one is made.
const MAX_ASKED: usize = 4;

/// The loop behind the chat. Clones are one learner.
#[derive(Debug, Clone)]
pub struct Learner {
    shared: Arc<Shared>,
    asked: Option<mpsc::Sender<TrainNow>>,
}

/// Why no step was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// Weights are not to learn.
    #[error("mode is skills_only: weights are not trained; set mode to rl or auto")]
    SkillsOnly,
    /// There is nobody to train.
    #[error("no training server is configured: set trainer.model, or rl.remote_url")]
    NoBackend,
    /// The training server does not answer.
    #[error("the training server cannot be used for now: {why}")]
    NoTrainer {
        /// Why.
        why: String,
    },
    /// The training server lacks a loss.
    #[error("the training server has no {loss}, which rl.method {method} needs")]
    NoLoss {
        /// Which.
        loss: &'static str,
        /// The configured methods.
        method: String,
    },
    /// The training server refused; the turns are free again.
    #[error("the training server refused the step: {why}")]
    Refused {
        /// What it said.
        why: String,
    },
    /// The log did not let the step begin.
    #[error("the step could not begin: {why}")]
    NotTaken {
        /// Why.
        why: String,
    },
    /// Others asked before.
    #[error("a training step is being made, and {MAX_ASKED} more were asked for already")]
    Busy,
    /// The learner ended; a step that was begun is settled at the next start.
    #[error("the learner is ending")]
    Interrupted,
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

// === impl TrainError ===

impl TrainError {
    /// Whether no agent can train for now.
    pub(crate) fn concerns_everyone(&self) -> bool {
        match self {
            Self::SkillsOnly
            | Self::NoBackend
            | Self::NoTrainer { .. }
            | Self::Busy
            | Self::Interrupted => true,
            Self::Log(error) => *error == LogError::Closed,
            Self::NoLoss { .. } | Self::Refused { .. } | Self::NotTaken { .. } => false,
        }
    }
}

// === impl Learner ===

impl Learner {
    /// Serves again what was served, then starts the tasks on `tracker`; they end when `cancel` says so, at
    /// once: what was under way is settled at the next start.
    ///
    /// # Errors
    /// The log's, when it cannot be read.
    pub async fn start(
        parts: Parts,
        tracker: &TaskTracker,
        cancel: CancellationToken,
    ) -> Result<Self, LogError> {
        let shared = Arc::new(Shared::new(parts, cancel));
        for name in &shared.config.rl.method.later {
            tracing::warn!(
                method = name,
                "this part of rl.method is not built yet and is left out"
            );
        }
        recover::serve_again(&shared).await?;
        tracker.spawn(judging::run(Arc::clone(&shared)));
        let Some(backend) = shared.backend.clone() else {
            shared.board.phase(Phase::Off);
            return Ok(Self {
                shared,
                asked: None,
            });
        };
        tracker.spawn(tokens::run(Arc::clone(&shared), Arc::clone(&backend)));
        let (asked, receiver) = mpsc::channel(MAX_ASKED);
        tracker.spawn(Training::new(Arc::clone(&shared), backend).run(receiver));
        Ok(Self {
            shared,
            asked: Some(asked),
        })
    }

    /// Makes a step now of everything there is to train on, however little, whether or not the user is away;
    /// for one agent, or for each. Waits for it. An empty list: there was nothing.
    ///
    /// # Errors
    /// [`TrainError`].
    pub async fn train_now(&self, agent: Option<AgentId>) -> Result<Vec<StepReport>, TrainError> {
        let config = &self.shared.config;
        let learns = match &agent {
            Some(agent) => config.mode_of(agent) != Mode::SkillsOnly,
            None => config.learns(),
        };
        if !learns {
            return Err(TrainError::SkillsOnly);
        }
        let asked = self.asked.as_ref().ok_or(TrainError::NoBackend)?;
        let (answer, answered) = oneshot::channel();
        asked
            .try_send(TrainNow { agent, answer })
            .map_err(|error| match error {
                TrySendError::Full(_) => TrainError::Busy,
                TrySendError::Closed(_) => TrainError::Interrupted,
            })?;
        answered.await.unwrap_or(Err(TrainError::Interrupted))
    }

    /// How learning goes.
    ///
    /// # Errors
    /// The log's.
    pub async fn status(&self) -> Result<LearnerStatus, LogError> {
        let notes = self.shared.board.read();
        let config = &self.shared.config;
        let serving = self.shared.log.serving().await?;
        let mut agents = Vec::new();
        for agent in self.shared.log.agents().await? {
            let known = notes.agents.get(&agent).cloned().unwrap_or_default();
            let adapter = serving
                .iter()
                .find(|(name, _)| *name == agent)
                .map(|(_, adapter)| adapter.clone());
            agents.push(AgentStatus {
                adapter,
                n_redo: known.counts.0,
                n_binary_rl: known.counts.1,
                last_step: known.last_step,
                last_window_ms: known.last_window_ms,
                funnel: self.shared.log.funnel(Some(&agent)).await?,
                agent,
            });
        }
        Ok(LearnerStatus {
            mode: config.mode,
            method: config.rl.method.to_string(),
            left_out: config.rl.method.later.clone(),
            judging: notes.judging,
            phase: notes.phase,
            agents,
        })
    }
}

#[cfg(test)]
mod tests;
