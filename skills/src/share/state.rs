//! `share.json` in the library's folder: this home's name in shares, what it shares, and what it has seen of others. From
//! it follows where a skill that is in force came from.

use std::{collections::BTreeMap, path::Path};

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

use super::index::digest;
use crate::{
    bank,
    evolve::{Proposal, SharedOrigin},
    file::{JournalError, read_json, write_json, write_text},
    skill::SkillName,
    writer::WriterId,
};

const FILE: &str = "share.json";

/// What this home remembers of sharing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ShareState {
    /// This home's name, made at the first use.
    pub(super) writer: Option<WriterId>,
    /// The serial number of its present index.
    pub(super) serial: u64,
    /// What it shares, by `<agent>/<name>`.
    pub(super) published: BTreeMap<String, Published>,
    /// The highest serial number of each home that was signed with our key.
    pub(super) seen: BTreeMap<WriterId, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) digest: String,
    /// When it was last changed, in Unix milliseconds.
    pub(super) at_ms: u64,
}

// === impl ShareState ===

impl ShareState {
    pub(super) fn read(dir: &Path) -> Result<Self, JournalError> {
        read_json(&dir.join(FILE))
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), JournalError> {
        write_json(&dir.join(FILE), self, write_text)
    }
}

/// The longest SKILL.md that is shared, in bytes.
pub(super) const MAX_TEXT: u64 = 32 * 1024;

/// The origin of the file that an agent has for a skill.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CurrentSkill<'a> {
    /// The skill does not exist here, or it is an unchanged skill of the bank.
    Unwritten,
    /// This home shares it.
    Published { digest: String, at_ms: u64 },
    /// It came from another home of the same person.
    Own(&'a SharedOrigin),
    /// It came from another person, or it is not shared.
    Other,
}

/// Returns the key of a skill in [`ShareState::published`].
pub(super) fn path_of(agent: &AgentId, name: &SkillName) -> String {
    format!("{agent}/{name}")
}

/// Returns the accepted proposal that a file's text came from, if another home shared it.
pub(super) fn import_of<'a>(
    proposals: &'a [Proposal],
    agent: &AgentId,
    name: &SkillName,
    text: &str,
) -> Option<&'a SharedOrigin> {
    let is_it =
        |proposal: &&Proposal| proposal.is_accepted_of(agent, name) && proposal.text == text;
    let mut proposals = proposals.iter().rev().filter(is_it);
    proposals.find_map(|proposal| proposal.shared.as_ref())
}

// === impl CurrentSkill ===

impl<'a> CurrentSkill<'a> {
    /// Finds the origin of `text`, the file of a skill.
    pub(super) fn of(
        dir: &Path,
        state: &ShareState,
        proposals: &'a [Proposal],
        agent: &AgentId,
        name: &SkillName,
        text: Option<&str>,
    ) -> Self {
        let Some(text) = text else {
            return Self::Unwritten;
        };
        if agent.is_shared() && bank::is_unchanged(dir, name.as_str(), text) {
            return Self::Unwritten;
        }
        if let Some(import) = import_of(proposals, agent, name, text) {
            return if import.is_own {
                Self::Own(import)
            } else {
                Self::Other
            };
        }
        let digest = digest(text);
        match state.published.get(&path_of(agent, name)) {
            Some(published) if published.digest == digest => Self::Published {
                digest,
                at_ms: published.at_ms,
            },
            Some(_) | None => Self::Other,
        }
    }

    /// Returns whether a version that the same person wrote elsewhere takes its place: the newer one does. Both homes
    /// compare the same numbers, so both come to the same result.
    pub(super) fn gives_way_to(&self, at_ms: u64, digest: &str) -> bool {
        let is_newer = |than_ms: u64, than: &str| (at_ms, digest) > (than_ms, than);
        match self {
            Self::Unwritten => true,
            Self::Published { digest, at_ms } => is_newer(*at_ms, digest),
            Self::Own(import) => is_newer(import.at_ms, &import.digest),
            Self::Other => false,
        }
    }
}
