//! Settings of this crate: `skills.*`, `wishes.*` and `memory.*`.

use std::path::PathBuf;

use metaclaw_chat::{AgentId, Secret, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `skills.*` of the configuration.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SkillsConfig {
    /// Adds matching skills to the system text of requests.
    #[default(true)]
    pub enabled: bool,
    /// The folder of skills. Without it, skills in the home folder.
    #[schemars(extend("format" = "path"))]
    pub dir: Option<PathBuf>,
    /// The token budget for all skills of one request, by estimate.
    #[schemars(range(max = 100_000))]
    #[default(1_500)]
    pub budget_tokens: usize,
    /// The most skills in one request. Beyond the third, skills are hardly ever useful.
    #[schemars(range(max = 1_000))]
    #[default(3)]
    pub top_k: usize,
    /// The most skills in one request whose category is not general. Without it, only skills.top_k limits them.
    #[schemars(range(max = 1_000))]
    pub task_specific_top_k: Option<usize>,
    /// When the skills of a session are chosen: once a session, which keeps prompt caches valid, or at each turn.
    pub refresh: Refresh,
    /// Has a model write skills from turns that went wrong.
    #[default(true)]
    pub auto_evolve: bool,
    /// After how many turns of an agent the model is asked for skills. 0 means never.
    #[default(10)]
    pub evolution_every_n_turns: u64,
    /// Holds each skill that the model writes until you accept it. With false, only skills that may hold other people's
    /// words or look dangerous are held.
    #[default(true)]
    pub review: bool,
    /// Shares skills with other machines and people.
    pub share: ShareConfig,
}

/// `skills.share.*`: skills that are shared between machines and people through a folder or a bucket.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShareConfig {
    /// A folder that another program synchronises (Syncthing, Dropbox, NFS). Skills of this home are copied into it,
    /// and those of other homes are read from it. Without folder and bucket, nothing is shared.
    #[schemars(extend("format" = "path"))]
    pub folder: Option<PathBuf>,
    /// A bucket in place of the folder, for example s3://team/skills, with the credentials of AWS's own programs
    /// (docs/using/sharing.md).
    pub bucket: Option<String>,
    /// The address of a service with the API of S3, such as `https://minio.example:9000`. Without it, the bucket is at
    /// AWS.
    pub endpoint: Option<String>,
    /// The region of the bucket. Without it, AWS_REGION or AWS_DEFAULT_REGION, and us-east-1 where skills.share.endpoint
    /// is set.
    pub region: Option<String>,
    /// The key that all homes of one person have, at least 32 characters. Skills signed with it need no review. Without
    /// it, each skill of another home waits for your review.
    #[serde(skip_serializing)]
    pub key: Option<Secret>,
    /// The environment variable with the key, if skills.share.key is not set.
    pub key_env: Option<String>,
    /// How often skills are shared.
    #[default(Span::secs(30))]
    pub interval: Span,
    /// Your name, as the other people see it.
    pub name: Option<String>,
    /// The agents whose skills are shared. _shared stands for the skills of all agents. An empty list
    /// means all of them.
    pub agents: Vec<AgentId>,
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
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WishesConfig {
    /// Adds the owner's standing wishes to requests.
    #[default(true)]
    pub enabled: bool,
    /// The ids by which the agents' hosts name the owner in groups and channels. If some are given, every other named
    /// sender is another person, whose wishes apply only to this person's messages.
    pub owners: Vec<String>,
    /// Where wishes stand in a request. With user, they follow each message of the owner, which small models need.
    pub place: WishPlace,
    /// The token budget for wishes, by estimate. Beyond it, the oldest wishes are left out.
    #[schemars(range(max = 4_000))]
    #[default(300)]
    pub max_tokens: usize,
    /// How long a message of yours may wait, so that the model reads several in one request. Only messages wait about which
    /// rules are not sure. With 0 s, the model reads each at once.
    #[default(Span::secs(600))]
    pub wait: Span,
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

/// `memory.*` of the configuration.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own, as in the Python original"
)]
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemoryConfig {
    /// Remembers facts that you tell, and adds those that matter to the system text of new sessions. Without it, this
    /// is done for all agents but OpenClaw, Claude Code and Hermes, which have a memory of their own
    /// (docs/using/memory.md).
    pub enabled: Option<bool>,
    /// The folder of memories. Without it, the folder `memory` in the home folder.
    #[schemars(extend("format" = "path"))]
    pub dir: Option<PathBuf>,
    /// The scope of a request that names none. A session gets only the memories of its own scope.
    #[default("default".to_owned())]
    pub scope: String,
    /// Which memories a session gets. auto: those that matter for its first message. keyword: those that share words with
    /// it. hybrid: these, and the most important of the others.
    pub retrieval_mode: RetrievalMode,
    /// The most memories in one request.
    #[schemars(range(max = 100))]
    #[default(6)]
    pub max_injected_units: usize,
    /// The most tokens that the memories of one request take, by estimate.
    #[schemars(range(max = 20_000))]
    #[default(800)]
    pub max_injected_tokens: usize,
    /// Remembers facts from chats. With false, memories come only from `metaclaw memory add` and from POST
    /// /v1/memory/buffer_turn.
    #[default(true)]
    pub auto_extract: bool,
    /// Replaces a memory by a newer one that says almost the same, or that contradicts it. With false, each stays, and a
    /// repeated fact is stored once.
    #[default(true)]
    pub auto_consolidate: bool,
    /// After this many sessions that were read for facts, all memories are compared with each other again.
    #[schemars(range(min = 1))]
    #[default(10)]
    pub consolidation_interval: u64,
    /// Also reads side turns that contain your own words.
    pub ignore_turn_type: bool,
    /// Reads what you typed only when a program calls POST /v1/memory/ingest, flush_session or buffer_turn.
    pub manual_trigger: bool,
    /// After this many of your messages, a session is read for facts. A session that ends or is silent for ten minutes
    /// is read earlier.
    #[schemars(range(min = 1, max = 50))]
    #[default(5)]
    pub flush_every: usize,
    /// After this many hours, a memory that waits for your review is deleted. 0 means never.
    #[default(336)]
    pub review_stale_after_hours: u64,
    /// The path of a `policy.json` that the Python MetaClaw wrote. Its limits and weights replace these
    /// settings. Without it, the file policy.json in memory.dir counts, if it exists.
    #[schemars(extend("format" = "path"))]
    pub policy_path: Option<PathBuf>,
    /// A file that gets a line of JSON each time a session gets memories: time, agent, scope and ids of the memories.
    /// Without it, no such line is written.
    #[schemars(extend("format" = "path"))]
    pub telemetry_path: Option<PathBuf>,
}

// === impl MemoryConfig ===

impl MemoryConfig {
    /// Returns whether any agent has memories.
    pub fn is_on(&self) -> bool {
        self.enabled != Some(false)
    }
}

/// Which memories a session gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetrievalMode {
    /// Those that matter for the first message, by their topics, their words, and how firmly they were said.
    #[default]
    Auto,
    /// Only memories that share words with the first message.
    Keyword,
    /// These, and the most important of the others.
    Hybrid,
}
