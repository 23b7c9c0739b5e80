//! Stores what an agent's host has learned by itself, compares it with our lessons, and deletes it.

use metaclaw_chat::{AgentId, SessionId};

use crate::{
    file::JournalError,
    host::{HeldBack, HostReading, HostStore},
    library::Library,
    wishes::Wish,
};

// === impl Library ===

impl Library {
    /// Returns what the agent's host has learned by itself, as the owner's last turn showed it.
    pub fn host(&self, agent: &AgentId) -> Option<HostReading> {
        let hosts = self.0.hosts.load();
        hosts.get(agent).map(|host| host.reading.clone())
    }

    /// Returns whether the agent's host has learned something.
    pub fn knows_host(&self, agent: &AgentId) -> bool {
        let hosts = self.0.hosts.load();
        let known = hosts.get(agent);
        known.is_some_and(|known| !known.reading.lessons.is_empty())
    }

    /// Returns which of our lessons the agent's host has itself. Whether it shows them in a certain conversation is
    /// another question ([`HeldBack::shown`]).
    pub fn held_back(&self, agent: &AgentId) -> HeldBack {
        let hosts = self.0.hosts.load();
        let known = hosts.get(agent);
        known.map_or_else(HeldBack::default, |known| {
            known.held_back(&self.wishes(agent), &self.skills(agent))
        })
    }

    /// Stores what an agent's host shows, and replaces what it showed before. Returns whether that differs. It accesses
    /// the file system only in that case.
    ///
    /// # Errors
    /// Returns [`JournalError`] if the file cannot be written.
    pub fn note_host(
        &self,
        agent: &AgentId,
        mut reading: HostReading,
    ) -> Result<bool, JournalError> {
        let before = self.host(agent);
        if let Some(before) = &before
            && before.session == reading.session
        {
            reading.lessons.keep_intents(&before.lessons);
        }
        let is_known = match &before {
            Some(before) => before.session == reading.session && before.lessons == reading.lessons,
            None => reading.lessons.is_empty(),
        };
        if is_known {
            return Ok(false);
        }
        let _lock = self.lock_lessons()?;
        // An unreadable file was reported, and its content comes again.
        let mut store = HostStore::read(self.dir()).unwrap_or_default();
        store.put(agent, reading);
        store.write(self.dir())?;
        self.set_hosts(store);
        Ok(true)
    }

    /// Deletes what hosts showed in some sessions. Returns the number of agents concerned.
    ///
    /// # Errors
    /// Returns [`JournalError`] if the file cannot be written.
    pub fn forget_hosts(
        &self,
        is_forgotten: impl Fn(&AgentId, &SessionId) -> bool,
    ) -> Result<usize, JournalError> {
        let _lock = self.lock_lessons()?;
        let read = HostStore::read(self.dir());
        let is_damaged = read.is_err();
        let mut store = read.unwrap_or_default();
        let before = store.0.len();
        store
            .0
            .retain(|agent, reading| !is_forgotten(agent, &reading.session));
        let n_forgotten = before - store.0.len();
        // It is not known whose words a damaged file contains.
        if n_forgotten > 0 || is_damaged {
            store.write(self.dir())?;
        }
        self.set_hosts(store);
        Ok(n_forgotten)
    }

    /// Returns the wishes in force for an agent that its host does not have itself. These are the ones to train on.
    pub fn wishes_to_teach(&self, agent: &AgentId) -> Vec<Wish> {
        let held_back = self.held_back(agent);
        let mut wishes = self.wishes(agent);
        wishes.retain(|wish| held_back.line_for(wish).is_none());
        wishes
    }
}
