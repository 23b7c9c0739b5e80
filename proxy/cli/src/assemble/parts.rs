//! What several parts of the process share.

use std::sync::Arc;

use metaclaw_control::token_budget::TokenBudget;
use metaclaw_gateway::{Privacy, Serving};
use metaclaw_skills::{Library, MemoryStore};
use metaclaw_turns::TurnLog;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What is kept of what was said and learned, and what learning may cost.
#[derive(Debug, Clone)]
pub(super) struct Stores {
    pub(super) log: TurnLog,
    pub(super) library: Library,
    /// What the owner told; it is used only with `memory.enabled`.
    pub(super) memory: MemoryStore,
    pub(super) budget: Arc<TokenBudget>,
}

/// What the gateway asks about an agent before it serves it.
#[derive(Debug, Clone)]
pub(super) struct GatewayState {
    /// Which adapter to ask for.
    pub(super) serving: Arc<Serving>,
    /// Who is only relayed, and what is off the record.
    pub(super) privacy: Arc<Privacy>,
}

/// The tasks beside the gateway, and what ends them.
#[derive(Debug, Clone)]
pub(super) struct Background {
    pub(super) tasks: TaskTracker,
    /// Cancelled once no reply is under way.
    pub(super) ending: CancellationToken,
}
