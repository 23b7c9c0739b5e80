//! Proposals, and how far an agent's turns have been used: `proposals.json` in the library's folder.
//!
//! Both are in one file that is written in one rename. So a turn is used as evidence once, and the result is never
//! lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use metaclaw_chat::{AgentId, SessionId, TurnId};
use serde::{Deserialize, Serialize};

use super::figures::TrialFigures;
use crate::{
    file::{JournalError, WriterId, read_json, write_json, write_text},
    guard::Suspicion,
    skill::SkillName,
};

const FILE: &str = "proposals.json";
/// The number of proposals that are kept. Beyond it, the oldest settled ones are removed.
const MAX_KEPT: usize = 500;
/// The number of turns that are remembered as evidence. Beyond it, the oldest are removed. The log keeps turns for a
/// month.
const MAX_USED: usize = 20_000;

/// The evidence behind a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub agent: AgentId,
    /// The sessions of the turns, and the sessions behind the skills that the evolver was shown.
    pub sessions: Vec<SessionId>,
    /// The failed turns.
    pub turns: Vec<TurnId>,
    /// The time in Unix milliseconds.
    pub at_ms: u64,
}

/// The home that a shared skill came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedOrigin {
    /// The home.
    pub writer: WriterId,
    /// The name that its owner gave, or an empty text. Nobody checks it.
    #[serde(default)]
    pub person: String,
    /// The name of its machine. Nobody checks it.
    #[serde(default)]
    pub machine: String,
    /// Whether it was signed with this home's `skills.share.key`, so that the same person wrote it.
    #[serde(default)]
    pub is_own: bool,
    /// The name under which it is shared. It is kept when the words are deleted.
    pub name: SkillName,
    /// The hash of the published SKILL.md.
    pub digest: String,
    /// When it was written there, in Unix milliseconds.
    pub at_ms: u64,
    /// The turns of that home from which it was written. None if people wrote it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnId>,
    /// Whether the author has withdrawn it, while it stays in force here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_withdrawn: bool,
}

/// A skill, or a new version of one, that a model wrote or that another home shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Its number, from 1.
    pub n: u64,
    /// Its evidence.
    #[serde(flatten)]
    pub source: Source,
    pub name: SkillName,
    /// The complete SKILL.md.
    pub text: String,
    /// The reasons why it waits, or waited, and the figures of its trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<Reason>,
    /// The agent's own SKILL.md of that name, which it replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
    /// When the owner accepted it, in Unix milliseconds. `None` if it did not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The home that it came from. `None` if a model wrote it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedOrigin>,
    /// Its present state.
    pub state: ProposalState,
}

/// Why a proposal waits for the owner's review, and what its trial showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reason {
    /// `skills.review` requires it for each.
    #[display("a model wrote it, and skills.review asks for your look")]
    Review,
    /// Others than the owner spoke, or were quoted, in its evidence.
    #[display(
        "tools, other people or quoted texts spoke in what it was made from: their words may be in it"
    )]
    Others,
    /// It would replace a skill that people wrote.
    #[display("it would take the place of a skill that people wrote")]
    Replaces,
    /// Another home shares it, and is not known to be of the same person.
    #[display(
        "it came from {by}, through the shared folder: what others wrote waits for your look"
    )]
    Shared { by: String },
    /// The owner removed an earlier version, or took it back.
    #[display("you removed an earlier version of it, or took it back")]
    Removed,
    /// It was not tried yet.
    #[display("it was not tried on earlier requests yet")]
    Untried,
    /// It was tried.
    #[display("{figures}")]
    Tried {
        figures: TrialFigures,
        /// When, in Unix milliseconds.
        at_ms: u64,
    },
    /// It was tried again while it was in force.
    #[display("{}", figures.again())]
    TriedAgain {
        figures: TrialFigures,
        /// When, in Unix milliseconds.
        at_ms: u64,
    },
    /// Something in it looks dangerous.
    #[display("{what}: {line:?}")]
    Suspicious { what: Suspicion, line: String },
}

/// The state of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalState {
    /// It waits for the owner's review.
    Waiting,
    /// It was added to the agent's skills.
    Accepted,
    /// The owner rejected it.
    Rejected,
    /// It was accepted and later reverted.
    Reverted,
    /// Its trial showed no gain, or a loss.
    Declined,
    /// It was in force, until a later trial showed no gain any more.
    AgedOut,
    /// Its evidence was deleted, or its author withdrew it, so its words are gone.
    Forgotten,
}

/// How far an agent's turns have been used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Number of the agent's main turns when the evolver was last asked.
    pub n_main: u64,
    /// Turns that were evidence and are not used again.
    pub used: BTreeSet<TurnId>,
    /// The tokens that trials have cost, by estimate.
    #[serde(default)]
    pub trial_tokens: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProposalStore {
    pub(crate) progress: BTreeMap<AgentId, Progress>,
    pub(crate) proposals: Vec<Proposal>,
}

// === impl Store ===

impl ProposalStore {
    pub(crate) fn read(dir: &Path) -> Result<Self, JournalError> {
        read_json(&dir.join(FILE))
    }

    pub(crate) fn write(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.drop_oldest();
        write_json(&dir.join(FILE), self, write_text)
    }

    pub(crate) fn next_n(&self) -> u64 {
        self.proposals.last().map_or(1, |last| last.n + 1)
    }

    fn drop_oldest(&mut self) {
        let mut too_many = self.proposals.len().saturating_sub(MAX_KEPT);
        self.proposals.retain(|p| {
            let is_settled = p.state == ProposalState::Forgotten || p.state.is_unwanted();
            let goes = too_many > 0 && is_settled;
            too_many -= usize::from(goes);
            !goes
        });
        for progress in self.progress.values_mut() {
            while progress.used.len() > MAX_USED {
                progress.used.pop_first();
            }
        }
    }
}

// === impl ProposalState ===

impl ProposalState {
    pub(crate) fn is_unwanted(self) -> bool {
        match self {
            Self::Rejected | Self::Reverted | Self::Declined | Self::AgedOut => true,
            Self::Waiting | Self::Accepted | Self::Forgotten => false,
        }
    }
}

// === impl Proposal ===

impl Proposal {
    pub(crate) fn in_force_ms(&self) -> u64 {
        self.since_ms.unwrap_or(self.source.at_ms)
    }

    /// Replaces a waiting proposal that says less, and takes over its evidence.
    pub(super) fn takes_place_of(&mut self, before: &Self) {
        self.n = before.n;
        let (own, sources) = (&mut self.source, &before.source);
        own.sessions.extend(sources.sessions.iter().cloned());
        own.sessions.sort();
        own.sessions.dedup();
        own.turns.splice(0..0, sources.turns.iter().copied());
        if before.why.contains(&Reason::Others) && !self.why.contains(&Reason::Others) {
            self.why.push(Reason::Others);
        }
    }

    pub(crate) fn is_of(&self, agent: &AgentId, name: &SkillName) -> bool {
        self.source.agent == *agent && self.name == *name
    }

    pub(crate) fn is_accepted_of(&self, agent: &AgentId, name: &SkillName) -> bool {
        self.state == ProposalState::Accepted && self.is_of(agent, name)
    }

    pub(crate) fn is_from(&self, writer: &WriterId) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.writer == *writer)
    }

    /// Clears its words, including its name.
    pub(crate) fn forget(&mut self) {
        self.name = SkillName::forgotten(self.n);
        self.text.clear();
        self.why.clear();
        self.former = None;
        self.state = ProposalState::Forgotten;
    }

    /// Returns whether it waits for the owner's review.
    pub fn is_waiting(&self) -> bool {
        self.state == ProposalState::Waiting
    }
}

// === impl SharedOrigin ===

impl fmt::Display for SharedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writer,
            person,
            machine,
            ..
        } = self;
        match (self.is_own, person.as_str()) {
            (true, _) => write!(f, "your machine {machine} ({writer})"),
            (false, "") => write!(f, "the machine {machine} ({writer}, not verified)"),
            (false, person) => write!(f, "{person}, machine {machine} ({writer}, not verified)"),
        }
    }
}
