//! Where a skill that is in force came from, as far as sharing is concerned.

use std::path::Path;

use metaclaw_chat::AgentId;

use super::{index::digest, state::ShareState};
use crate::{
    bank,
    evolve::{Proposal, ProposalState, SharedOrigin},
    skill::SkillName,
};

/// The longest SKILL.md that is shared, in bytes.
pub(super) const MAX_TEXT: u64 = 32 * 1024;

/// The origin of the file that an agent has for a skill.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CurrentSkill<'a> {
    /// There is none, or it is one of the bank that nobody has changed.
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
    let is_it = |it: &&Proposal| {
        it.state == ProposalState::Accepted
            && it.source.agent == *agent
            && it.name == *name
            && it.text == text
    };
    let mut proposals = proposals.iter().rev().filter(is_it);
    proposals.find_map(|it| it.shared.as_ref())
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
