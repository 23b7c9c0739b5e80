//! Settings of this crate: `skills.*` and `wishes.*`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `skills.*` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SkillsConfig {
    /// Adds matching skills to the system text of requests.
    pub enabled: bool,
    /// The folder of skills. Without it, skills in the home folder.
    #[schemars(extend("format" = "path"))]
    pub dir: Option<PathBuf>,
    /// The token budget for all skills of one request, by estimate.
    #[schemars(range(max = 100_000))]
    pub budget_tokens: usize,
    /// The most skills in one request. Beyond the third, skills are hardly ever useful.
    #[schemars(range(max = 1_000))]
    pub top_k: usize,
    /// When the skills of a session are chosen: once a session, which keeps prompt caches valid, or at each turn.
    pub refresh: Refresh,
    /// Has a model write skills from turns that went wrong.
    pub auto_evolve: bool,
    /// After how many turns of an agent the model is asked for skills. 0 means never.
    pub evolution_every_n_turns: u64,
    /// Holds each skill that the model writes until you accept it. With false, only skills that may hold other people's
    /// words or look dangerous are held.
    pub review: bool,
}

/// When the skills of a session are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// Once, at its first instruction, and unchanged after that, so that prompt caches stay valid.
    #[default]
    Session,
    /// At each message of the owner.
    Turn,
}

/// `wishes.*` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WishesConfig {
    /// Adds the owner's standing wishes to requests.
    pub enabled: bool,
    /// Where wishes stand in a request. With user, they follow each message of the owner, which small models need.
    pub place: WishPlace,
    /// The token budget for wishes, by estimate. Beyond it, the oldest wishes are left out.
    #[schemars(range(max = 4_000))]
    pub max_tokens: usize,
}

/// Where wishes stand in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
