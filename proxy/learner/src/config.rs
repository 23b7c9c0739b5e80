//! The settings of this room: `mode`, `agents.<id>.mode`, `judge.*`, `rl.*`, `gate.*`.

mod gate_parts;
mod judge;
mod method_names;
mod rl;

use std::collections::BTreeMap;

use metaclaw_chat::AgentId;
pub use metaclaw_chat::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

pub use self::{
    gate_parts::GatePart,
    judge::{JudgeConfig, JudgeKind},
    method_names::{Methods, Words},
    rl::{RlConfig, RlConfigError, RolloutsConfig, SupportQuery, TargetForm, Teacher},
};

/// Everything that the learner reads of the configuration: deserialised from its root.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LearnerConfig {
    /// When weights are trained: skills_only never trains, rl trains whenever a batch is ready, and auto trains when a
    /// batch is ready and you are away.
    pub mode: Mode,
    pub agents: BTreeMap<AgentId, AgentConfig>,
    pub judge: JudgeConfig,
    pub rl: RlConfig,
    pub gate: GateConfig,
}

/// `agents.<id>`, as far as it is this room's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentConfig {
    /// The mode of this agent. Without it, mode holds. With skills_only, the policy model answers this agent only if
    /// nobody else can.
    pub mode: Option<Mode>,
}

/// `gate.*`: the tests that an adapter or a skill must pass before it serves.
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GateConfig {
    /// Tests adapters before they serve. With false, every adapter serves at once, and mode auto trains only on request.
    #[default(true)]
    pub enabled: bool,
    /// How relevant replies must be to their questions, as a share of the relevance of the base model with your wishes
    /// in its prompt.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[default(0.8)]
    pub min_relevance: f64,
    /// The share of conversations that are kept out of training, to test adapters on them. The first 32 conversations
    /// of a home are all trained on.
    #[schemars(range(min = 0.0, max = 0.5))]
    #[default(0.15)]
    pub held_out: f64,
    /// Tries each skill that a model writes on earlier requests, with the skill and without it. A skill that is no
    /// better is declined (docs/using/lessons.md). Trials cost at most 5 % of the tokens of your chats.
    #[default(true)]
    pub lessons: bool,
    /// Tests that an adapter may skip if the training server cannot answer them (docs/training/tinker.md).
    pub accept_without: Vec<GatePart>,
}

// === impl LearnerConfig ===

impl LearnerConfig {
    /// Returns the settings in the form in which they are read.
    ///
    /// # Errors
    /// Never: the settings are only numbers and words, which JSON can store.
    pub fn to_value(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(self)
    }

    pub(crate) fn mode_of(&self, agent: &AgentId) -> Mode {
        let own = self.agents.get(agent).and_then(|own| own.mode);
        own.unwrap_or(self.mode)
    }

    /// Whether the weights of any agent are to learn.
    pub fn learns(&self) -> bool {
        let own = self.agents.values().filter_map(|own| own.mode);
        own.chain([self.mode]).any(|mode| mode != Mode::SkillsOnly)
    }
}

// === impl GateConfig ===

impl GateConfig {
    pub(crate) fn held_out_share(&self) -> f64 {
        if self.enabled { self.held_out } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
