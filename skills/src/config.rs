//! The settings of this room: `skills.*` and `wishes.*`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `skills.*` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkillsConfig {
    /// Whether skills are put into requests.
    pub enabled: bool,
    /// The library's folder; none means `skills` in MetaClaw's home.
    pub dir: Option<PathBuf>,
    /// The most tokens (estimated) that the skills of one request may cost.
    pub budget_tokens: usize,
    /// The most skills in one request.
    pub top_k: usize,
    /// When a session's choice of skills is made anew.
    pub refresh: Refresh,
    /// Whether a model writes skills from what went wrong.
    pub auto_evolve: bool,
    /// So many main turns of an agent, and the model is asked; 0: never.
    pub evolution_every_n_turns: u64,
    /// Whether each skill that a model writes waits for the owner's look.
    pub review: bool,
}

/// When the skills of a session are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// At its first instruction, kept byte for byte after that: prompt caches live.
    #[default]
    Session,
    Turn,
}

/// `wishes.*` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WishesConfig {
    /// Whether wishes are put into requests.
    pub enabled: bool,
    pub place: WishPlace,
    /// The most tokens (estimated) that wishes may cost; beyond it the oldest are left out.
    pub max_tokens: usize,
}

/// Where wishes stand in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WishPlace {
    /// At the end of the system text: strong models obey it, and caches keep it.
    #[default]
    System,
    /// As a line after every message of the owner: small models need that.
    User,
}

// === impl SkillsConfig ===

impl Default for SkillsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            dir: None,
            budget_tokens: 1_500,
            top_k: 3,
            refresh: Refresh::default(),
            auto_evolve: true,
            evolution_every_n_turns: 10,
            review: true,
        }
    }
}

// === impl WishesConfig ===

impl Default for WishesConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            place: WishPlace::default(),
            max_tokens: 300,
        }
    }
}
