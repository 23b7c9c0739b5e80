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
    /// Remembers facts that you tell, and adds those that matter to the system text of new sessions. Turn it on only
    /// for an agent that has no memory of its own: OpenClaw, Claude Code and others have one, and the same facts would
    /// then be in the prompt twice (docs/using/memory.md).
    pub enabled: bool,
    /// The folder of memories. Without it, the folder `memory` in the home folder.
    #[schemars(extend("format" = "path"))]
    pub dir: Option<PathBuf>,
    /// The scope of a request that names none. A session gets only the memories of its own scope.
    pub scope: String,
    /// Which memories a session gets. keyword: those that share words with its first message. hybrid: also the most
    /// important of the others. auto: the same as hybrid.
    pub retrieval_mode: RetrievalMode,
    /// The most memories in one request.
    #[schemars(range(max = 100))]
    pub max_injected_units: usize,
    /// The most tokens that the memories of one request take, by estimate.
    #[schemars(range(max = 20_000))]
    pub max_injected_tokens: usize,
    /// Remembers facts from chats. With false, memories come only from `metaclaw memory add` and from POST
    /// /v1/memory/buffer_turn.
    pub auto_extract: bool,
    /// Replaces a memory by a newer one that says almost the same, or that contradicts it. With false, a newer memory
    /// replaces none; a repeated fact is still stored once.
    pub auto_consolidate: bool,
    /// After this many sessions that were read for facts, all memories are compared with each other again.
    #[schemars(range(min = 1))]
    pub consolidation_interval: u64,
    /// Also reads side turns that contain your own words.
    pub ignore_turn_type: bool,
    /// Reads what you typed only when a program calls POST /v1/memory/ingest, flush_session or buffer_turn.
    pub manual_trigger: bool,
    /// After this many of your messages, a session is read for facts. A session that ends or is silent for ten minutes
    /// is read earlier.
    #[schemars(range(min = 1, max = 50))]
    pub flush_every: usize,
    /// After this many hours, a memory that waits for your review is deleted. 0 means never.
    pub review_stale_after_hours: u64,
    /// A policy.json of the Python original. Its limits and weights replace these settings. Without it, the file
    /// policy.json in memory.dir counts, if it exists.
    #[schemars(extend("format" = "path"))]
    pub policy_path: Option<PathBuf>,
    /// A file that gets a line of JSON each time a session gets memories: the time, the agent, the scope and the ids of
    /// the memories. Without it, no such line is written.
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

impl MemoryConfig {
    /// Reads the section. The deserialiser is compiled here, and not in each crate that calls this.
    ///
    /// # Errors
    /// A value that does not fit its field.
    pub fn from_value(value: serde_json::Value) -> serde_json::Result<Self> {
        serde_json::from_value(value)
    }
}

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
