//! The settings of this room: `mode`, `agents.<id>.mode`, `judge.*`, `rl.*`, `gate.*`.

mod gate_parts;
mod judge;
mod methods;
mod policy_loss;
mod rl;
mod words;

use std::collections::BTreeMap;

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

pub(crate) use self::gate_parts::GatePart;
pub use self::{
    gate_parts::GateParts,
    judge::{JudgeConfig, JudgeKind},
    methods::Methods,
    policy_loss::RlConfigError,
    rl::{RlConfig, TargetForm, Teacher},
    words::Words,
};

/// Everything that the learner reads of the configuration: deserialised from its root.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnerConfig {
    /// Whether the weights learn, and when.
    pub mode: Mode,
    /// What is different for single agents.
    pub agents: BTreeMap<AgentId, AgentConfig>,
    /// How turns are judged.
    pub judge: JudgeConfig,
    /// How weights are trained.
    pub rl: RlConfig,
    /// What they have to pass before they serve.
    pub gate: GateConfig,
}

/// `agents.<id>`, as far as it is this room's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// Its mode; without one, that of all.
    pub mode: Option<Mode>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// When a batch is ready and the owner is away; where no gate tests what would serve ([`GateConfig::enabled`]), only when
    /// asked to.
    #[default]
    #[serde(alias = "madmax")]
    Auto,
    /// When a batch is ready.
    Rl,
    /// Never.
    SkillsOnly,
}

/// `gate.*`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateConfig {
    /// Whether an adapter is tested before it serves.
    pub enabled: bool,
    /// How relevant its replies must be where they keep all that is wished, as a share of the reference's relevance, 0 to 1.
    /// Replies that keep nothing of it must be as relevant as the plain base model's.
    pub min_relevance: f64,
    /// Sessions of which none is learned from, so that the gate can ask about them: a share of all, 0 to 0.5. None where it
    /// does not test.
    pub held_out: f64,
    /// Tests that an adapter may serve without where the training server cannot answer what they ask.
    pub accept_without: GateParts,
}

// === impl LearnerConfig ===

impl LearnerConfig {
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
    /// The share of sessions that are not learned from.
    pub(crate) fn held_out_share(self) -> f64 {
        if self.enabled { self.held_out } else { 0.0 }
    }
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            min_relevance: 0.8,
            held_out: 0.15,
            accept_without: GateParts::default(),
        }
    }
}

#[cfg(test)]
mod tests;
