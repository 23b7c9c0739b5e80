//! Stores what each agent's host has learned, in `host.json` of the library's folder, which only its owner can read.
//!
//! The file has the state of the last turn and can be made again. If it is unreadable, this is reported and a new one
//! is begun.
//!
//! Lessons of ours that are left out because the host has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use metaclaw_chat::{AgentId, SessionId};
use serde::{Deserialize, Serialize};

use super::{
    gist::{Gist, gists},
    reader::HostLessons,
};
use crate::{
    file::{JournalError, read_json, write_json, write_private},
    skill::{Skill, SkillName},
    wishes::Wish,
};

const FILE: &str = "host.json";
/// The largest number of agents. Beyond it, those that were seen longest ago are removed.
const MAX_AGENTS: usize = 64;

/// What one agent's host has learned, as the owner's last turn showed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReading {
    /// The session that showed it. If that is deleted, this is deleted too.
    pub session: SessionId,
    /// When this was first seen, in Unix milliseconds.
    pub at_ms: u64,
    #[serde(flatten)]
    pub lessons: HostLessons,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct HostStore(pub(crate) BTreeMap<AgentId, HostReading>);

#[derive(Debug)]
pub(crate) struct IndexedReading {
    pub(crate) reading: HostReading,
    /// The content of each note without a limit, with the note's index.
    gists: Vec<(usize, Gist)>,
}

// === impl HostStore ===

impl HostStore {
    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    pub(crate) fn read(dir: &Path) -> Result<Self, JournalError> {
        read_json(&Self::path(dir))
    }

    pub(crate) fn put(&mut self, agent: &AgentId, reading: HostReading) {
        self.0.insert(agent.clone(), reading);
        while self.0.len() > MAX_AGENTS {
            let oldest = self.0.iter().min_by_key(|(_, it)| it.at_ms);
            let Some(oldest) = oldest.map(|(agent, _)| agent.clone()) else {
                return;
            };
            self.0.remove(&oldest);
        }
    }

    /// Writes the file. Only its owner can read it.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), JournalError> {
        write_json(&Self::path(dir), self, write_private)
    }
}

// === impl IndexedReading ===

impl IndexedReading {
    pub(crate) fn new(reading: HostReading) -> Self {
        let notes = reading.lessons.notes.iter().enumerate();
        let always = notes.filter(|(_, note)| note.within.is_none());
        let gists =
            always.flat_map(|(n, note)| gists(&note.text).into_iter().map(move |gist| (n, gist)));
        let gists = gists.collect();
        Self { reading, gists }
    }

    pub(crate) fn held_back(&self, wishes: &[Wish], skills: &[Arc<Skill>]) -> HeldBack {
        let notes = &self.reading.lessons.notes;
        let held = |wish: &Wish| {
            let gist = Gist::new(&wish.text);
            let (n, _) = self.gists.iter().find(|(_, it)| it.is_same(&gist))?;
            Some((wish.clone(), notes.get(*n)?.text.clone()))
        };
        let hosts = self.reading.lessons.skills.iter();
        let hosts: BTreeSet<&str> = hosts.map(|host| host.name.as_str()).collect();
        let is_hosts = |skill: &&Arc<Skill>| hosts.contains(skill.name.as_str());
        HeldBack {
            wishes: wishes.iter().filter_map(held).collect(),
            skills: skills
                .iter()
                .filter(is_hosts)
                .map(|skill| skill.name.clone())
                .collect(),
        }
    }
}

/// The lessons that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Wishes, each with the host's line that says the same.
    pub wishes: Vec<(Wish, String)>,
    /// Skills whose names the host has too.
    pub skills: Vec<SkillName>,
}

// === impl HeldBack ===

impl HeldBack {
    /// Returns whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.wishes.is_empty() && self.skills.is_empty()
    }

    /// Keeps only lessons that the host shows in this conversation, as `shows` finds. A line that it showed elsewhere
    /// does not count.
    #[must_use]
    pub fn shown(mut self, shows: impl Fn(&str) -> bool) -> Self {
        self.wishes.retain(|(_, line)| shows(line));
        self.skills.retain(|name| shows(name.as_str()));
        self
    }

    /// Returns the host's line that says the same as this wish.
    pub fn line_for(&self, wish: &Wish) -> Option<&str> {
        let mut held = self.wishes.iter().filter(|(held, _)| held == wish);
        held.next().map(|(_, line)| line.as_str())
    }
}
