//! What a step makes.

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{AdapterName, CheckpointName};

/// An adapter that a step made. Its checkpoint is there, and it serves nobody yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) agent: AgentId,
    /// The step's number in its lineage.
    pub(crate) n: u64,
    pub(crate) adapter: AdapterName,
    pub(crate) checkpoint: CheckpointName,
    /// When the owner chose what it goes on from; none where the lineage went on by itself.
    pub(crate) choice_ms: Option<u64>,
    /// Of its content, where the server says.
    pub(crate) sha256: Option<String>,
}
