//! How the running process is, as `metaclaw status` shows it.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use metaclaw_chat::AgentId;
use metaclaw_gateway::{Counts, RelayOnly, UpstreamAnswers};
use metaclaw_learner::LearnerStatus;
use metaclaw_skills::ShareReport;
use metaclaw_trainer_api::wire::Inference;
use metaclaw_turns::Funnel;
use serde::{Deserialize, Serialize};

use crate::{
    cloud_spend::CloudSpend,
    figures::{ChatTokens, PrefixReport, Verdicts},
    token_budget::Spend,
    waiting::WaitingReviews,
};

/// What serves, what learns, and what leaves the machine, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// `auto`, `rl` or `skills_only`.
    pub mode: String,
    pub serves: String,
    /// What gets better, and when.
    pub learns: String,
    pub leaves: String,
    /// Whether a model judges what may be a complaint.
    pub judges_complaints: bool,
    /// Where each upstream is: a host, or this machine.
    pub places: BTreeMap<String, String>,
}

/// How the running process is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    pub pid: u32,
    pub version: String,
    /// Where agents talk to it.
    pub proxy: SocketAddr,
    /// When it began to listen, in milliseconds since 1970.
    pub since_ms: u64,
    /// What serves, what learns, what leaves the machine.
    pub about: RunSummary,
    /// Who is only relayed for now.
    pub off: RelayOnly,
    /// Who trains and serves the policy model, where there is one.
    pub trainer: Option<TrainerStatus>,
    /// Who answers chats for it, where that is not its engine.
    pub inference: Option<Inference>,
    /// The number format that the training server computes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_format: Option<String>,
    /// The adapter that each agent is served with.
    pub serving: BTreeMap<String, String>,
    /// Adapters that were to serve and cannot.
    pub lost: Vec<LostAdapter>,
    /// Tokens of the longest conversation with the policy model; none where its server has not said it.
    pub context: Option<u64>,
    /// How many turns came how far.
    pub funnel: Funnel,
    /// The log of turns.
    pub log: LogStatus,
    /// What the gateway counts.
    pub counts: Counts,
    /// How each upstream that was asked has answered.
    pub upstreams: BTreeMap<String, UpstreamAnswers>,
    /// How many requests passed unread, by method and route.
    #[serde(default)]
    pub passed: BTreeMap<String, u64>,
    /// The settings' file, where it says something else now than at the start.
    pub config_changed: Option<PathBuf>,
    /// Lines of our own log that were dropped, as nobody read them in time.
    pub dropped_lines: usize,
    /// How learning goes; none where the log does not say.
    pub learner: Option<LearnerStatus>,
    /// What was spent on asking models.
    pub spend: Spend,
    /// The tokens of today's chat, by days of UTC. None where the log does not say.
    pub chat: Option<ChatTokens>,
    /// Today's verdicts, by days of UTC.
    #[serde(default)]
    pub verdicts: Verdicts,
    /// Today's prompts that a provider's cache could not serve as far as it might have. `latest` has up to eight since
    /// the start.
    #[serde(default)]
    pub prefix: PrefixReport,
    /// What was used of a training server by Tinker's API; none where there is none.
    pub cloud: Option<CloudSpend>,
    /// What waits for the owner's look; none where the files do not say.
    pub waiting: Option<WaitingReviews>,
    /// The last look at the shared folder or bucket; none where nothing is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareReport>,
}

/// How the local trainer is, or the training server of `rl.remote_url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TrainerStatus {
    /// It loads its model.
    #[display("starting")]
    Starting,
    #[display("ready at {address} (PID={pid})")]
    Ready { address: SocketAddr, pid: u32 },
    /// It runs, but does not answer.
    #[display("runs at {address} (PID={pid}), but does not answer")]
    Silent { address: SocketAddr, pid: u32 },
    /// It ended and is started again.
    #[display("down ({reason}); it is started again")]
    Down { reason: String },
    #[display("ended")]
    Ended,
    /// The server elsewhere answers, and has this model.
    #[display("{url} answers, and has {model}")]
    Answers { url: String, model: String },
    /// It answers, and has none.
    #[display("{url} has no model: {why}")]
    WithoutModel { url: String, why: String },
    /// It does not answer, or refuses.
    #[display("{url} cannot be used: {why}")]
    Away { url: String, why: String },
}

/// An adapter that was to serve an agent and cannot: the base model answers in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostAdapter {
    pub agent: AgentId,
    pub adapter: String,
    /// What the training server says.
    pub why: String,
}

/// How the log of turns is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Age of the oldest turn that is not on disk yet, in milliseconds.
    pub oldest_unflushed_ms: Option<u64>,
    /// Why nothing is captured, where nothing is.
    pub broken: Option<String>,
    /// Where the log was moved at the start, as it was damaged; an empty one began.
    pub moved_aside: Option<PathBuf>,
    /// Changes that the log had lost at the start: its file was cut, or the power failed.
    pub n_lost: u64,
    /// A copy of the log as it was before it lost them, of a short one.
    pub copied: Option<PathBuf>,
    /// Why the machine's clock is not trusted, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
}

/// How the local trainer is, as its supervisor sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrainerState {
    /// It was started and loads its model.
    Starting,
    /// It answers at an address.
    Ready {
        address: SocketAddr,
        pid: u32,
    },
    /// It ended, and will be started again.
    Down {
        reason: String,
    },
    Ended,
}

impl From<TrainerState> for TrainerStatus {
    fn from(state: TrainerState) -> Self {
        match state {
            TrainerState::Starting => Self::Starting,
            TrainerState::Ready { address, pid } => Self::Ready { address, pid },
            TrainerState::Down { reason } => Self::Down { reason },
            TrainerState::Ended => Self::Ended,
        }
    }
}

// === impl ProcessStatus ===

impl ProcessStatus {
    /// Says how many requests passed unread on which routes, and how many chats could not be read, or `None` if there
    /// were none.
    pub fn unread(&self) -> Option<String> {
        let routes = self.passed.iter().map(|(it, n)| format!("{it} {n}"));
        let routes: Vec<String> = routes.collect();
        let (n, n_chats) = (self.passed.values().sum::<u64>(), self.counts.unread);
        let passed = (n > 0).then(|| format!("{n} passed as they came: {}", routes.join(", ")));
        let chats = (n_chats > 0).then(|| format!("chats that could not be read: {n_chats}"));
        let said: Vec<String> = passed.into_iter().chain(chats).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}
