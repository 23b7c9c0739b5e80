//! Settings of this crate: `skills.*` and `wishes.*`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The section `skills.*` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkillsConfig {
    /// Whether skills are added to requests.
    pub enabled: bool,
    /// The library's folder. `None` means `skills` in MetaClaw's home folder.
    pub dir: Option<PathBuf>,
    /// The largest cost of the skills of one request, in estimated tokens.
    pub budget_tokens: usize,
    /// The largest number of skills in one request.
    pub top_k: usize,
    /// When a session's skills are chosen again.
    pub refresh: Refresh,
    /// Whether a model writes skills from failed turns.
    pub auto_evolve: bool,
    /// Number of main turns of an agent after which the model is asked for skills. 0 means never.
    pub evolution_every_n_turns: u64,
    /// Whether each skill that a model writes waits for the owner's review.
    pub review: bool,
}

/// When the skills of a session are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// Once, at its first instruction, and unchanged after that, so that prompt caches stay valid.
    #[default]
    Session,
    Turn,
}

/// The section `wishes.*` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WishesConfig {
    /// Whether wishes are added to requests.
    pub enabled: bool,
    pub place: WishPlace,
    /// The largest cost of wishes, in estimated tokens. Beyond it, the oldest are left out.
    pub max_tokens: usize,
}

/// The place of wishes in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WishPlace {
    /// At the end of the system prompt. Strong models obey it, and caches keep it.
    #[default]
    System,
    /// As a line after every message of the owner. Small models need that.
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
