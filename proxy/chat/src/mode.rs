//! `mode`: whether the weights learn, and when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `mode`, for all agents or for one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Weights are trained when a batch is ready and the owner is away; where no gate tests adapters, only on request.
    #[default]
    #[serde(alias = "madmax")]
    Auto,
    /// Weights are trained when a batch is ready.
    Rl,
    /// Weights are never trained.
    SkillsOnly,
}

// === impl Mode ===

impl Mode {
    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rl => "rl",
            Self::SkillsOnly => "skills_only",
        }
    }
}
