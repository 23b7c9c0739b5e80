//! `rl.rollouts.*`: how turns of rollouts are learned from.

use metaclaw_chat::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::sample::AdvantageForm;

/// `rl.rollouts.*`.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RolloutsConfig {
    /// What is compared in a group of rollouts: outcomes (group), or outcome plus step reward of the turns with the
    /// same number (step). Without it, step for groups with step rewards, else group (docs/training/grpo.md).
    pub advantage: Option<AdvantageForm>,
    /// How many rollouts make up one step that nobody asked for. A step has whole groups.
    #[schemars(range(min = 2))]
    #[default(32)]
    pub batch_size: usize,
    /// The age from which a turn is no longer used, in optimizer steps since the weights that sampled it.
    #[default(4)]
    pub max_lag: u64,
    /// How long the gate waits for rollouts on held-out tasks.
    #[default(Span::mins(10))]
    pub gate_wait: Span,
}
