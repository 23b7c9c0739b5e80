//! What is said between a subcommand and the running process; also what `--json` prints.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use metaclaw_chat::{AgentId, SessionId, TurnId};
use metaclaw_gateway::{Counts, KeyConfig, RelayOnly, UpstreamAnswers};
use metaclaw_learner::LearnerStatus;
use metaclaw_skills::{Lesson, SkillName};
use metaclaw_trainer_api::wire::Inference;
use metaclaw_turns::{Funnel, LessonCounts, StateKind, TurnFilter};
use serde::{Deserialize, Serialize};

use crate::{
    assemble::{CloudSpend, Spend},
    banner::About,
    waiting::Waiting,
};

/// How the running process is.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Status {
    pub pid: u32,
    pub version: String,
    /// Where agents talk to it.
    pub proxy: SocketAddr,
    /// When it began to listen, in milliseconds since 1970.
    pub since_ms: u64,
    /// What serves, what learns, what leaves the machine.
    pub about: About,
    /// Who is only relayed for now.
    pub off: RelayOnly,
    /// Who trains and serves the policy model, where there is one.
    pub trainer: Option<TrainerStatus>,
    /// Who answers chats for it, where that is not its engine.
    pub inference: Option<Inference>,
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
    /// The settings' file, where it says something else now than at the start.
    pub config_changed: Option<PathBuf>,
    /// Lines of our own log that were dropped, as nobody read them in time.
    pub dropped_lines: usize,
    /// How learning goes; none where the log does not say.
    pub learner: Option<LearnerStatus>,
    /// What was spent on asking models.
    pub spend: Spend,
    /// What was used of a training server by Tinker's API; none where there is none.
    pub cloud: Option<CloudSpend>,
    /// What waits for the owner's look; none where the files do not say.
    pub waiting: Option<Waiting>,
}

/// How the local trainer is, or the training server of `rl.remote_url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum TrainerStatus {
    /// It loads its model.
    Starting,
    Ready {
        address: SocketAddr,
        pid: u32,
    },
    /// It runs, but does not answer.
    Silent {
        address: SocketAddr,
        pid: u32,
    },
    /// It ended and is started again.
    Down {
        reason: String,
    },
    Ended,
    /// The server elsewhere answers, and has this model.
    Answers {
        url: String,
        model: String,
    },
    /// It answers, and has none.
    WithoutModel {
        url: String,
        why: String,
    },
    /// It does not answer, or refuses.
    Away {
        url: String,
        why: String,
    },
}

/// An adapter that was to serve an agent and cannot: the base model answers in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostAdapter {
    pub agent: AgentId,
    pub adapter: String,
    /// What the training server says.
    pub why: String,
}

/// How the log of turns is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogStatus {
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
}

/// Which turns to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TurnsQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateKind>,
    /// At most this many.
    pub limit: usize,
    /// Only those after this one in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<TurnId>,
}

/// A key that comes or goes.
#[derive(Debug, Deserialize)]
pub(crate) struct KeyChange {
    pub name: String,
    /// What it is from now on; none takes it away.
    pub key: Option<KeyConfig>,
}

/// Which adapter is to serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdapterChoice {
    /// For which agent; none: the one that the adapter was trained for, and all for the base model.
    pub agent: Option<AgentId>,
    /// Its name; none is the base model.
    pub adapter: Option<String>,
}

/// What is to change about wishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum WishChange {
    Add {
        agent: AgentId,
        wish: String,
    },
    Remove {
        agent: AgentId,
        wish: String,
    },
    Edit {
        agent: AgentId,
        wish: String,
        to: String,
    },
    /// Takes a lesson back: without a number the newest in force, be it a wish or a skill that was learned.
    Undo {
        n: Option<u64>,
    },
    /// Lets one stand that waits for review.
    Accept {
        n: u64,
    },
    /// Dismisses one that waits for review: it is not proposed again.
    Dismiss {
        n: u64,
    },
}

/// What is to become of a skill that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum SkillChange {
    /// A waiting one, by number or name.
    Accept {
        which: String,
    },
    Reject {
        which: String,
    },
    /// One that was accepted.
    Revert {
        agent: Option<AgentId>,
        name: SkillName,
    },
}

/// Which sessions are to be forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forget {
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
    /// Those that were spoken in since then, in Unix milliseconds.
    pub since_ms: Option<u64>,
}

/// The wishes of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LessonsView {
    /// Those in force, the newest last.
    pub wishes: Vec<String>,
    #[serde(default)]
    pub shared: Vec<String>,
    /// All that was learned, and what became of it.
    pub lessons: Vec<Lesson>,
    /// Where people edit them.
    pub file: PathBuf,
    /// How turns went with each and without, in the order of `wishes`.
    #[serde(default)]
    pub counts: Vec<LessonCounts>,
    /// Those that the serving adapter does without being told: their lines are left out where it answers.
    #[serde(default)]
    pub untold: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SkillView {
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The same text, the same version.
    pub version: String,
    pub content: String,
    /// How turns went with it and without.
    #[serde(default)]
    pub counts: LessonCounts,
}

/// One adapter that the trainer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdapterView {
    pub name: String,
    /// The agents that are served with it.
    pub agents: Vec<String>,
    /// Sessions and replies that hold it, and the pointers of its agents.
    pub n_leases: usize,
    /// Optimiser steps behind it, where its checkpoint is there.
    #[serde(default)]
    pub step: Option<u64>,
    /// What it was trained from; none is the base model.
    #[serde(default)]
    pub parent: Option<String>,
    /// When it was made, in Unix milliseconds.
    #[serde(default)]
    pub created_ms: Option<u64>,
}

// === impl AdapterView ===

impl AdapterView {
    /// One that nobody is known to be served with.
    pub(crate) fn named(name: String) -> Self {
        Self {
            name,
            agents: Vec::new(),
            n_leases: 0,
            step: None,
            parent: None,
            created_ms: None,
        }
    }
}

// === impl TurnsQuery ===

impl From<TurnsQuery> for TurnFilter {
    fn from(query: TurnsQuery) -> Self {
        let TurnsQuery {
            agent,
            session,
            state,
            limit,
            before,
        } = query;
        Self {
            agent,
            session,
            state,
            limit,
            before,
        }
    }
}
