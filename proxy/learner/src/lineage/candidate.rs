//! What a step makes.

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName};

use crate::lineage::ResumePoint;

/// An adapter that a step made. Its checkpoint is there, and it serves nobody yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) agent: AgentId,
    /// The step's number in its lineage.
    pub(crate) n: u64,
    /// What it learned from.
    pub(crate) turns: Vec<TurnId>,
    pub(crate) adapter: AdapterName,
    pub(crate) checkpoint: CheckpointName,
    /// Where a run stands that is at its checkpoint.
    pub(crate) point: ResumePoint,
    /// When the owner chose what it goes on from; none where the lineage went on by itself.
    pub(crate) choice_ms: Option<u64>,
    /// Of its content, where the server says.
    pub(crate) sha256: Option<String>,
}
