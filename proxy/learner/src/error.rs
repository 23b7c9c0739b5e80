//! Why no step was made.

use metaclaw_chat::AgentId;
use metaclaw_turns::LogError;

/// Steps that may be asked for while one is made.
pub(crate) const MAX_ASKED: usize = 4;

/// The training server is none of ours.
#[derive(Debug, thiserror::Error)]
#[error(
    "it gives no token ids of what it sampled, without which nothing can be learned from a reply: run metaclaw-trainer there, which answers the same API in its place"
)]
pub struct NoTokenIds;

/// The training server cannot help to test what it trains.
#[derive(Debug, thiserror::Error)]
#[error(
    "it scores no replies (POST /v1/train/forward), so that nothing it trains can be tested before it serves, and nothing is trained: run metaclaw-trainer there, or set gate.enabled: false to have untested weights serve"
)]
pub(crate) struct NoScores;

/// The training server cannot answer what some tests ask, and the configuration does not do without them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotTested(pub(crate) String);

/// Why no step was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// Weights are not to learn.
    #[error("mode is skills_only: weights are not trained; set mode to rl or auto")]
    SkillsOnly,
    /// The agent is only relayed.
    #[error("agent {agent} is only relayed for now: `metaclaw on` first")]
    Off { agent: AgentId },
    /// There is nobody to train.
    #[error("no training server is configured: set trainer.model, or rl.remote_url")]
    NoBackend,
    /// The training server does not answer.
    #[error("the training server cannot be used for now: {why}")]
    NoTrainer { why: String },
    /// The training server lacks a loss.
    #[error("the training server has no {loss}, which {method} needs")]
    NoLoss { loss: &'static str, method: String },
    /// The training server refused; the turns are free again.
    #[error("the training server refused the step: {why}")]
    Refused { why: String },
    /// The teacher could not be asked; its turn waits.
    #[error("the teacher could not be asked for now: {why}")]
    NoTeacher {
        /// What the server said.
        why: String,
    },
    /// The log did not let the step begin.
    #[error("the step could not begin: {why}")]
    NotTaken { why: String },
    #[error("a training step is being made, and {MAX_ASKED} more were asked for already")]
    Busy,
    /// The learner ended; a step that was begun is settled at the next start.
    #[error("the learner is ending")]
    Interrupted,
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
            Self::Off { .. }
            | Self::NoLoss { .. }
            | Self::Refused { .. }
            | Self::NoTeacher { .. }
            | Self::NotTaken { .. } => false,
        }
    }
}
