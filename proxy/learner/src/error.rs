//! Why no step was made.

use metaclaw_chat::AgentId;
use metaclaw_turns::LogError;

/// The largest number of requests for a step that may wait while a step is made.
pub(crate) const MAX_ASKED: usize = 4;

/// The training server is not MetaClaw's and lacks what training needs.
#[derive(Debug, thiserror::Error)]
#[error(
    "it gives no token ids of what it sampled, without which nothing can be learned from a reply: run metaclaw-trainer there, which answers the same API in its place"
)]
pub struct NoTokenIds;

/// The training server cannot score replies, which the gate needs.
#[derive(Debug, thiserror::Error)]
#[error(
    "it scores no replies (POST /v1/train/forward), so that nothing it trains can be tested before it serves, and nothing is trained: run metaclaw-trainer there, or set gate.enabled: false to have untested weights serve"
)]
pub(crate) struct NoScores;

/// The training server lacks what some tests need, and the configuration does not switch these tests off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotTested(pub(crate) String);

/// Why no step was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// The mode trains no weights.
    #[error("mode is skills_only: no weights are trained (`metaclaw config mode auto`)")]
    SkillsOnly,
    /// The proxy only relays this agent's requests.
    #[error("agent {agent} is only relayed for now: `metaclaw on` first")]
    Off { agent: AgentId },
    /// The agent's weights are being trained from a data set.
    #[error(
        "agent {agent} is being trained from a data set: wait until that `metaclaw train` has ended, or end it"
    )]
    DataSet { agent: AgentId },
    /// No agent is trained, because no training server is configured.
    #[error("no training server is configured: set trainer.model, or rl.remote_url")]
    NoBackend,
    /// The training server does not answer.
    #[error("the training server cannot be used for now: {why}")]
    NoTrainer { why: String },
    /// The training server lacks a loss.
    #[error("the training server has no {loss}, which {method} needs")]
    NoLoss { loss: &'static str, method: String },
    /// The training server refused the step; the turns are free again.
    #[error("the training server refused the step: {why}")]
    Refused { why: String },
    /// The teacher could not be reached; its turn waits.
    #[error("the teacher could not be asked for now: {why}")]
    NoTeacher { why: String },
    /// The owner's own function gave no advantages; the rollouts wait.
    #[error("the function of rl.advantages gives no advantages: {why}")]
    NoAdvantages { why: String },
    /// The log could not record the beginning of the step.
    #[error("the step could not begin: {why}")]
    NotTaken { why: String },
    #[error("a training step is being made, and {MAX_ASKED} more were asked for already")]
    Busy,
    /// The learner ended; the next start settles a step that had begun.
    #[error("the learner is ending")]
    Interrupted,
    #[error(transparent)]
    Log(#[from] LogError),
}

// === impl TrainError ===

impl TrainError {
    pub(crate) fn concerns_everyone(&self) -> bool {
        match self {
            Self::SkillsOnly
            | Self::NoBackend
            | Self::NoTrainer { .. }
            | Self::Busy
            | Self::Interrupted => true,
            Self::Log(error) => *error == LogError::Closed,
            Self::Off { .. }
            | Self::DataSet { .. }
            | Self::NoLoss { .. }
            | Self::Refused { .. }
            | Self::NoTeacher { .. }
            | Self::NoAdvantages { .. }
            | Self::NotTaken { .. } => false,
        }
    }
}
