//! What each agent's host has learned, in `host.json` of the library's folder: only its owner can read that file.
//!
//! It is what the last turn showed and can be had again: a file that does not read back is told of and begun anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use metaclaw_chat::{AgentId, SessionId};
use serde::{Deserialize, Serialize};

use super::{
    gist::{Gist, gists},
    held_back::HeldBack,
    lessons::HostLessons,
};
use crate::{
    file::{MAX_JOURNAL, read_text, write_private},
    journal::JournalError,
    skill::Skill,
    wishes::Wish,
};

const FILE: &str = "host.json";
/// Agents whose hosts are known; beyond, those that were seen longest ago go.
const MAX_AGENTS: usize = 64;

/// What one agent's host has learned, as its owner's last turn showed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReading {
    /// In which session: it goes when that is forgotten.
    pub session: SessionId,
    /// When it was seen to show this, in Unix milliseconds.
    pub at_ms: u64,
    #[serde(flatten)]
    pub lessons: HostLessons,
}

/// All of them, as the file has them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct HostStore(pub(crate) BTreeMap<AgentId, HostReading>);

/// One reading, ready to be compared with.
#[derive(Debug)]
pub(crate) struct IndexedReading {
    pub(crate) reading: HostReading,
    /// What each note says that always holds, with the number of the note.
    gists: Vec<(usize, Gist)>,
}

// === impl HostStore ===

impl HostStore {
    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Reads the file; where there is none, nothing is known.
    pub(crate) fn read(dir: &Path) -> Result<Self, JournalError> {
        let path = Self::path(dir);
        let read = match read_text(&path, MAX_JOURNAL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::from),
            Err(error) => Err(error),
        };
        read.map_err(|source| JournalError { path, source })
    }

    /// Puts a reading in the place of the agent's former one.
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

    /// Writes it, for its owner's eyes alone.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), JournalError> {
        let path = Self::path(dir);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from);
        let written = text.and_then(|text| write_private(&path, &text));
        written.map_err(|source| JournalError { path, source })
    }
}

// === impl IndexedReading ===

impl IndexedReading {
    pub(crate) fn new(reading: HostReading) -> Self {
        let notes = reading.lessons.notes.iter().enumerate();
        let always = notes.filter(|(_, note)| note.within.is_none());
        let gists =
            always.flat_map(|(n, note)| gists(&note.text).into_iter().map(move |it| (n, it)));
        let gists = gists.collect();
        Self { reading, gists }
    }

    /// What of ours this host says itself.
    pub(crate) fn held_back(&self, wishes: &[Wish], skills: &[Arc<Skill>]) -> HeldBack {
        let notes = &self.reading.lessons.notes;
        let held = |wish: &Wish| {
            let gist = Gist::of(&wish.text);
            let (n, _) = self.gists.iter().find(|(_, it)| it.is_same(&gist))?;
            Some((wish.clone(), notes.get(*n)?.text.clone()))
        };
        let hosts = self.reading.lessons.skills.iter();
        let hosts: BTreeSet<&str> = hosts.map(|it| it.name.as_str()).collect();
        let is_hosts = |skill: &&Arc<Skill>| hosts.contains(skill.name.as_str());
        HeldBack {
            wishes: wishes.iter().filter_map(held).collect(),
            skills: skills
                .iter()
                .filter(is_hosts)
                .map(|it| it.name.clone())
                .collect(),
        }
    }
}
