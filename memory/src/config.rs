//! Settings of this crate: `memory.*`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `memory.*` of the configuration.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own, as in the Python original"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemoryConfig {
    /// Remembers facts that you tell, and adds those that matter to the system text of new sessions. It is for agents
    /// without a memory. OpenClaw, Claude Code and others have their own, and would say the same twice
    /// (docs/using/memory.md).
    pub enabled: bool,
    /// The folder of memories. Without it, memory in the home folder.
    #[schemars(extend("format" = "path"))]
    pub dir: Option<PathBuf>,
    /// The scope of memories whose request names none. A session gets only memories of its own scope.
    pub scope: String,
    /// Which memories a session gets. keyword takes those that share words with its first message; hybrid adds the most
    /// important of the others; auto is hybrid.
    pub retrieval_mode: RetrievalMode,
    /// The most memories in one request.
    #[schemars(range(max = 100))]
    pub max_injected_units: usize,
    /// The token budget for the memories of one request, by estimate.
    #[schemars(range(max = 20_000))]
    pub max_injected_tokens: usize,
    /// Remembers facts from chats. With false, memories come only from `metaclaw memory add` and POST /v1/memory.
    pub auto_extract: bool,
    /// Replaces a memory by a newer one that says the same, or says something else of the same thing. With false, only
    /// repetitions are replaced.
    pub auto_consolidate: bool,
    /// After how many sessions with new memories all memories are compared with each other again.
    #[schemars(range(min = 1))]
    pub consolidation_interval: u64,
    /// Reads side turns as well, where your own words are in them.
    pub ignore_turn_type: bool,
    /// Reads what you typed only when POST /v1/memory/ingest or flush_session asks for it.
    pub manual_trigger: bool,
    /// How many of your messages in a session are read for facts at once. A silent session is read earlier.
    #[schemars(range(min = 1, max = 50))]
    pub flush_every: usize,
    /// After how many hours a memory that waits for your review is dropped. 0 means never.
    pub review_stale_after_hours: u64,
    /// A policy.json of the Python original, whose limits and weights are used in place of the settings. Without it,
    /// policy.json in memory.dir, if it is there.
    #[schemars(extend("format" = "path"))]
    pub policy_path: Option<PathBuf>,
    /// A file to which a line of JSON is added each time a session gets memories: when, whose, which. Without it, none
    /// is written.
    #[schemars(extend("format" = "path"))]
    pub telemetry_path: Option<PathBuf>,
}

/// Which memories a session gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetrievalMode {
    /// The same as `hybrid`.
    #[default]
    Auto,
    /// Only memories that share words with the first message.
    Keyword,
    /// Also the most important of the others.
    Hybrid,
}

// === impl MemoryConfig ===

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            dir: None,
            scope: "default".to_owned(),
            retrieval_mode: RetrievalMode::default(),
            max_injected_units: 6,
            max_injected_tokens: 800,
            auto_extract: true,
            auto_consolidate: true,
            consolidation_interval: 10,
            ignore_turn_type: false,
            manual_trigger: false,
            flush_every: 5,
            review_stale_after_hours: 336,
            policy_path: None,
            telemetry_path: None,
        }
    }
}
