//! Proposals, and how far an agent's turns have been looked at: `proposals.json` in the library's folder.
//!
//! Both stand in one file that is written in one rename: a turn is evidence once, and what came of it is never lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::Path,
};

use metaclaw_chat::{AgentId, SessionId, TurnId};
use serde::{Deserialize, Serialize};

use crate::{
    file::{MAX_JOURNAL, read_text, write_text},
    guard::Suspicion,
    journal::JournalError,
    skill::SkillName,
};

const FILE: &str = "proposals.json";
/// Proposals that are kept: beyond, the oldest that were settled go.
const MAX_KEPT: usize = 500;
/// Turns that are remembered as evidence: beyond, the oldest go. The log keeps turns for a month.
const MAX_USED: usize = 20_000;

/// What a proposal was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub agent: AgentId,
    /// Their conversations, and those that the skills came from which the evolver was shown.
    pub sessions: Vec<SessionId>,
    /// The turns that went wrong.
    pub turns: Vec<TurnId>,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
}

/// A skill, or a new version of one, that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Its number, from 1.
    pub n: u64,
    /// What it was made from.
    #[serde(flatten)]
    pub source: Source,
    pub name: SkillName,
    /// The whole SKILL.md.
    pub text: String,
    /// Why it waits, or waited; nothing where it did not need to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<Reason>,
    /// The agent's own SKILL.md of that name, which it took the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
    /// When the owner let it stand, in Unix milliseconds; none where it did not wait for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// What became of it.
    pub state: ProposalState,
}

/// Why a proposal waits for the owner's look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reason {
    /// `skills.review` says that each does.
    Review,
    /// Others than the owner spoke, or were quoted, in what it was made from.
    Others,
    /// It would take the place of a skill that people wrote.
    Replaces,
    /// Something in it looks dangerous.
    Suspicious {
        what: Suspicion,
        /// The beginning of the line.
        line: String,
    },
}

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalState {
    /// It waits for the owner's look.
    Waiting,
    /// It was put among the agent's skills.
    Accepted,
    /// The owner would not have it.
    Rejected,
    /// It was accepted and taken back.
    Reverted,
    /// Its words are gone: what it was made from was forgotten.
    Forgotten,
}

/// How far an agent's turns have been looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Main turns that the agent had when the evolver was last asked.
    pub n_main: u64,
    /// Turns that were evidence: never again.
    pub used: BTreeSet<TurnId>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub(super) progress: BTreeMap<AgentId, Progress>,
    pub(super) proposals: Vec<Proposal>,
}

// === impl Store ===

impl Store {
    pub(super) fn read(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(FILE);
        let failed = |source| JournalError {
            path: path.clone(),
            source,
        };
        match read_text(&path, MAX_JOURNAL) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| failed(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(failed(error)),
        }
    }

    pub(super) fn write(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.drop_oldest();
        let path = dir.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from);
        let written = text.and_then(|text| write_text(&path, &(text + "\n")));
        written.map_err(|source| JournalError { path, source })
    }

    /// The number of the next proposal.
    pub(super) fn next_n(&self) -> u64 {
        self.proposals.last().map_or(1, |last| last.n + 1)
    }

    fn drop_oldest(&mut self) {
        let mut too_many = self.proposals.len().saturating_sub(MAX_KEPT);
        self.proposals.retain(|it| {
            let is_settled = match it.state {
                ProposalState::Waiting | ProposalState::Accepted => false,
                ProposalState::Rejected | ProposalState::Reverted | ProposalState::Forgotten => {
                    true
                }
            };
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

// === impl Proposal ===

impl Proposal {
    /// When it came into force, if it did, in Unix milliseconds.
    pub(crate) fn in_force_ms(&self) -> u64 {
        self.since_ms.unwrap_or(self.source.at_ms)
    }

    /// Becomes what another is that waits, with more in it: what that was made from, this is made from too.
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

    /// Whether it waits for the owner's look.
    pub fn is_waiting(&self) -> bool {
        self.state == ProposalState::Waiting
    }
}

// === impl Reason ===

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Review => f.write_str("a model wrote it, and skills.review asks for your look"),
            Self::Others => f.write_str(
                "tools, other people or quoted texts spoke in what it was made from: their words may be in it",
            ),
            Self::Replaces => f.write_str("it would take the place of a skill that people wrote"),
            Self::Suspicious { what, line } => write!(f, "{what}: {line:?}"),
        }
    }
}
