//! What an agent's host has learned by itself: noted, held against what is ours, forgotten.

use metaclaw_chat::{AgentId, SessionId};

use crate::{
    host::{HeldBack, HostReading, HostStore},
    journal::JournalError,
    library::Library,
    wishes::Wish,
};

// === impl Library ===

impl Library {
    /// What the agent's host has learned by itself, as its owner's last turn showed it.
    pub fn host(&self, agent: &AgentId) -> Option<HostReading> {
        let hosts = self.hosts();
        hosts.get(agent).map(|it| it.reading.clone())
    }

    /// Whether the agent's host is known to have learned something.
    pub fn knows_host(&self, agent: &AgentId) -> bool {
        let hosts = self.hosts();
        let known = hosts.get(agent);
        known.is_some_and(|it| !it.reading.lessons.is_empty())
    }

    /// What of ours the agent's host says itself. Whether it does so in a certain conversation is for that to show
    /// ([`HeldBack::shown`]).
    pub fn held_back(&self, agent: &AgentId) -> HeldBack {
        let hosts = self.hosts();
        let known = hosts.get(agent);
        known.map_or_else(HeldBack::default, |it| {
            it.held_back(&self.wishes(agent), &self.skills(agent))
        })
    }

    /// Notes what an agent's host shows, in the place of what it showed before; whether that was something else. Touches
    /// the file system only then.
    ///
    /// # Errors
    /// [`JournalError`] when the file cannot be written.
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
        // What does not read back was told of, and can be had again.
        let mut store = HostStore::read(self.dir()).unwrap_or_default();
        store.put(agent, reading);
        store.write(self.dir())?;
        self.set_hosts(store);
        Ok(true)
    }

    /// Forgets what hosts showed in some sessions; of how many agents that was.
    ///
    /// # Errors
    /// [`JournalError`] when the file cannot be written.
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
        // Whose words a damaged file has, nobody can say.
        if n_forgotten > 0 || is_damaged {
            store.write(self.dir())?;
        }
        self.set_hosts(store);
        Ok(n_forgotten)
    }

    /// The wishes in force for an agent that its host does not say itself: those that are for us to teach.
    pub fn wishes_to_teach(&self, agent: &AgentId) -> Vec<Wish> {
        let held_back = self.held_back(agent);
        let mut wishes = self.wishes(agent);
        wishes.retain(|wish| held_back.line_for(wish).is_none());
        wishes
    }
}
