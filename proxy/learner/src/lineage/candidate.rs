//! The result of a step.

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName};

use crate::lineage::ResumePoint;

/// An adapter that a step made. Its checkpoint exists, and it does not serve yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) agent: AgentId,
    /// The step's number in its lineage.
    pub(crate) n: u64,
    /// The turns that it was trained on.
    pub(crate) turns: Vec<TurnId>,
    pub(crate) adapter: AdapterName,
    pub(crate) checkpoint: CheckpointName,
    /// The state of a run at its checkpoint.
    pub(crate) point: ResumePoint,
    /// When the owner chose the checkpoint that it continues, or `None` if the lineage continued by itself.
    pub(crate) choice_ms: Option<u64>,
    /// The hash of its content, if the server reports one.
    pub(crate) sha256: Option<String>,
}
