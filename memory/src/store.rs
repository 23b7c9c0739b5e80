//! The store: what is remembered, found, given to sessions and forgotten.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metaclaw_chat::{AgentId, SessionId, now_ms, whole_ms};
use metaclaw_skills::{Origin, suspicions};

use crate::{
    config::MemoryConfig,
    consolidate::{self, Consolidated, ReadMemory, Relation},
    error::MemoryError,
    facts::Fact,
    files::MemoryFiles,
    memory::{MAX_CHARS, Memory, MemoryKind, MemoryState, one_line},
    policy::MemoryPolicy,
    recall::{self, Recall},
    retrieve::{self, MemoryHit},
    scope::MemoryScope,
};

/// The most sessions whose scope is remembered.
const MAX_SESSIONS: usize = 4_096;
/// How sure a memory is that the owner wrote by hand.
const BY_HAND: f32 = 1.0;

/// Memories of every agent. Clones share one store.
#[derive(Debug, Clone)]
pub struct MemoryStore(Arc<StoreInner>);

#[derive(Debug)]
struct StoreInner {
    files: MemoryFiles,
    config: MemoryConfig,
    /// The scopes that requests named, by agent and session.
    scopes: Mutex<BTreeMap<(AgentId, SessionId), MemoryScope>>,
}

/// What the store did with a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Remembered {
    /// It is new.
    New(Memory),
    /// It was known; its time is now that of this fact.
    Again(Memory),
    /// It waits for the owner's review.
    Waits(Memory),
}

// === impl MemoryStore ===

impl MemoryStore {
    /// Returns a store in a folder. The first change creates the folder.
    pub fn open(dir: impl Into<PathBuf>, config: MemoryConfig) -> Self {
        Self(Arc::new(StoreInner {
            files: MemoryFiles::new(dir.into()),
            config,
            scopes: Mutex::default(),
        }))
    }

    pub fn config(&self) -> &MemoryConfig {
        &self.0.config
    }

    pub fn dir(&self) -> &Path {
        self.0.files.dir()
    }

    /// Returns the scope of requests that name none.
    pub fn default_scope(&self) -> MemoryScope {
        MemoryScope::new(&self.0.config.scope)
    }

    /// Records the scope that a request named. The session keeps it.
    pub fn note_scope(&self, agent: &AgentId, session: &SessionId, scope: MemoryScope) {
        let mut scopes = guarded(&self.0.scopes);
        let key = (agent.clone(), session.clone());
        if scopes.len() >= MAX_SESSIONS && !scopes.contains_key(&key) {
            scopes.clear();
        }
        scopes.insert(key, scope);
    }

    /// Returns the scope of a session.
    pub fn scope_of(&self, agent: &AgentId, session: &SessionId) -> MemoryScope {
        let scopes = guarded(&self.0.scopes);
        let known = scopes.get(&(agent.clone(), session.clone())).cloned();
        known.unwrap_or_else(|| self.default_scope())
    }

    /// Returns how memories are chosen.
    ///
    /// # Errors
    /// If the original's `policy.json` is there and cannot be read.
    pub fn policy(&self) -> Result<MemoryPolicy, MemoryError> {
        let path = self.0.config.policy_path.clone();
        let path = path.unwrap_or_else(|| self.dir().join("policy.json"));
        MemoryPolicy::of(&self.0.config).with_file(&path)
    }

    /// Stores a fact that the owner told. A suspicious one waits for review. It accesses the file system.
    ///
    /// # Errors
    /// [`MemoryError`]. Nothing has changed then.
    pub fn remember(
        &self,
        fact: &Fact,
        scope: &MemoryScope,
        origin: Origin,
    ) -> Result<Remembered, MemoryError> {
        let why = suspicions(&fact.content);
        let state = if why.is_empty() {
            MemoryState::Active
        } else {
            MemoryState::Review { why }
        };
        self.put(fact, scope, origin, state)
    }

    /// Stores a fact that the owner wrote by hand. No rule checks it. If the same waits for review, it is accepted.
    ///
    /// # Errors
    /// [`MemoryError`]. Nothing has changed then.
    pub fn write_down(
        &self,
        agent: &AgentId,
        scope: &MemoryScope,
        kind: MemoryKind,
        content: &str,
        is_pinned: bool,
    ) -> Result<Memory, MemoryError> {
        let fact = Fact {
            kind,
            content: content.to_owned(),
            said: None,
            confidence: BY_HAND,
        };
        let origin = Origin {
            agent: agent.clone(),
            session: None,
            turn: None,
            sender: None,
            at_ms: now_ms(),
        };
        let put = self.put(&fact, scope, origin, MemoryState::Active)?;
        let (Remembered::New(mut memory)
        | Remembered::Again(mut memory)
        | Remembered::Waits(mut memory)) = put;
        if is_pinned && !memory.is_pinned() {
            memory.importance = 1.0;
            self.0.files.change(agent, |memories| {
                let known = memories
                    .iter_mut()
                    .find(|it| it.memory_id == memory.memory_id);
                if let Some(known) = known {
                    known.importance = 1.0;
                }
            })?;
        }
        Ok(memory)
    }

    fn put(
        &self,
        fact: &Fact,
        scope: &MemoryScope,
        origin: Origin,
        state: MemoryState,
    ) -> Result<Remembered, MemoryError> {
        let content = one_line(&fact.content);
        if content.is_empty() {
            return Err(MemoryError::Empty);
        }
        let length = content.chars().count();
        if length > MAX_CHARS {
            return Err(MemoryError::TooLong { length });
        }
        let new = Memory {
            memory_id: id(&origin, scope, &content),
            scope_id: scope.clone(),
            kind: fact.kind,
            said: fact.said.clone().filter(|said| *said != content),
            content,
            importance: fact.kind.importance(),
            confidence: fact.confidence,
            updated_ms: origin.at_ms,
            origin,
            state,
        };
        let agent = new.origin.agent.clone();
        let merges = self.0.config.auto_consolidate;
        self.0
            .files
            .change(&agent, |memories| add(memories, new, merges))
    }

    /// Chooses the memories that a session gets, by its first message, among those of its agent and those of all agents
    /// (`_shared`).
    ///
    /// # Errors
    /// [`MemoryError`] if a file cannot be read. A failure of the telemetry file is only logged.
    pub fn recall(
        &self,
        agent: &AgentId,
        scope: &MemoryScope,
        query: &str,
    ) -> Result<Recall, MemoryError> {
        let policy = self.policy()?;
        let (own, shared) = (
            self.0.files.read(agent)?,
            self.0.files.read(&AgentId::shared())?,
        );
        let all = own
            .iter()
            .chain(shared.iter().filter(|it| it.origin.agent != *agent));
        let active: Vec<&Memory> = all
            .filter(|it| it.is_active() && it.scope_id == *scope)
            .collect();
        let now = now_ms();
        let recall = recall::choose(&active, query, &policy, now);
        if let (Some(path), Some(_)) = (&self.0.config.telemetry_path, &recall.block) {
            let noted = recall::note(path, agent, scope, &recall, now);
            if let Err(error) = noted.map_err(MemoryError::file(path)) {
                tracing::warn!(%error, "memory.telemetry_path gets no line about a recall");
            }
        }
        Ok(recall)
    }

    /// Returns the active memories that share words with a query, best first. Without an agent or a scope, those of
    /// all.
    ///
    /// # Errors
    /// [`MemoryError`] if a file cannot be read.
    pub fn search(
        &self,
        agent: Option<&AgentId>,
        scope: Option<&MemoryScope>,
        query: &str,
        limit: usize,
    ) -> Result<Vec<MemoryHit>, MemoryError> {
        let memories = self.list(agent, scope)?;
        let active = memories.iter().filter(|it| it.is_active());
        let mut hits = retrieve::search(active, query, &self.policy()?, now_ms());
        hits.truncate(limit);
        Ok(hits)
    }

    /// Returns all memories, the oldest first, of all agents if none is named.
    ///
    /// # Errors
    /// [`MemoryError`] if a file cannot be read.
    pub fn list(
        &self,
        agent: Option<&AgentId>,
        scope: Option<&MemoryScope>,
    ) -> Result<Vec<Memory>, MemoryError> {
        let agents = match agent {
            Some(agent) => vec![agent.clone()],
            None => self.0.files.agents()?,
        };
        let mut all = Vec::new();
        for agent in agents {
            let memories = self.0.files.read(&agent)?;
            let wanted = memories
                .iter()
                .filter(|it| scope.is_none_or(|scope| it.scope_id == *scope));
            all.extend(wanted.cloned());
        }
        all.sort_by_key(|it| it.origin.at_ms);
        Ok(all)
    }

    /// Returns one memory.
    ///
    /// # Errors
    /// [`MemoryError`] if a file cannot be read.
    pub fn get(&self, agent: Option<&AgentId>, id: &str) -> Result<Option<Memory>, MemoryError> {
        let mut all = self.list(agent, None)?.into_iter();
        Ok(all.find(|it| it.memory_id == id))
    }

    /// Deletes a memory, those that it had replaced, and those that these had replaced.
    ///
    /// # Errors
    /// [`MemoryError::Unknown`] if there is none with this id, or an error of its file.
    pub fn forget(&self, agent: Option<&AgentId>, id: &str) -> Result<Memory, MemoryError> {
        let known = self.get(agent, id)?;
        let known = known.ok_or_else(|| MemoryError::Unknown(id.to_owned()))?;
        self.0.files.change(&known.origin.agent, |memories| {
            let mut next = vec![id.to_owned()];
            while let Some(id) = next.pop() {
                memories.retain(|it| {
                    let is_replaced = matches!(&it.state, MemoryState::Superseded { superseded_by } if *superseded_by == id);
                    if is_replaced {
                        next.push(it.memory_id.clone());
                    }
                    !is_replaced && it.memory_id != id
                });
            }
        })?;
        Ok(known)
    }

    /// Deletes the memories that come from some sessions, and the messages of these sessions in the buffer. A memory that
    /// a deleted one had replaced is used again. Returns the deleted memories.
    ///
    /// # Errors
    /// [`MemoryError`] if a file cannot be read or written.
    pub fn forget_sessions(
        &self,
        is_gone: impl Fn(&AgentId, &SessionId) -> bool,
    ) -> Result<Vec<Memory>, MemoryError> {
        self.unbuffer(|turn| is_gone(&turn.agent, &turn.session))?;
        let goes = |it: &Memory| {
            let session = it.origin.session.as_ref();
            session.is_some_and(|session| is_gone(&it.origin.agent, session))
        };
        let mut gone = Vec::new();
        for agent in self.0.files.agents()? {
            if !self.0.files.read(&agent)?.iter().any(goes) {
                continue;
            }
            gone.extend(self.0.files.change(&agent, |memories| {
                let (gone, mut kept): (Vec<Memory>, Vec<Memory>) = memories.drain(..).partition(goes);
                for memory in &mut kept {
                    let was_replaced = matches!(&memory.state, MemoryState::Superseded { superseded_by }
                        if gone.iter().any(|it| it.memory_id == *superseded_by));
                    if was_replaced {
                        memory.state = MemoryState::Active;
                    }
                }
                *memories = kept;
                // What is used again may be older than another memory that is used.
                if self.0.config.auto_consolidate {
                    consolidate::consolidate(memories);
                }
                gone
            })?);
        }
        Ok(gone)
    }

    /// Returns how long a memory may wait for review (`memory.review_stale_after_hours`).
    pub fn patience(&self) -> Duration {
        let hours = self.0.config.review_stale_after_hours;
        Duration::from_secs(hours.saturating_mul(3_600))
    }

    /// Compares the memories of each agent with each other, and deletes those that waited too long for review by a time
    /// that is certain. Without one, none is deleted.
    ///
    /// # Errors
    /// [`MemoryError`] if a file cannot be read or written.
    pub fn consolidate(&self, certain_ms: Option<u64>) -> Result<Consolidated, MemoryError> {
        let stale_ms = whole_ms(self.patience());
        let is_stale = |it: &Memory| {
            let waits = matches!(it.state, MemoryState::Review { .. });
            let waited_ms = certain_ms.map_or(0, |now| now.saturating_sub(it.updated_ms));
            waits && stale_ms > 0 && waited_ms > stale_ms
        };
        let mut done = Consolidated::default();
        for agent in self.0.files.agents()? {
            let of_agent = self.0.files.change(&agent, |memories| {
                let before = memories.len();
                memories.retain(|it| !is_stale(it));
                let dropped = before - memories.len();
                let merged = if self.0.config.auto_consolidate {
                    consolidate::consolidate(memories)
                } else {
                    Consolidated::default()
                };
                Consolidated { dropped, ..merged }
            })?;
            done.merged += of_agent.merged;
            done.superseded += of_agent.superseded;
            done.dropped += of_agent.dropped;
        }
        Ok(done)
    }

    pub(crate) fn files(&self) -> &MemoryFiles {
        &self.0.files
    }
}

/// Adds a memory, or confirms the one that says the same.
fn add(memories: &mut Vec<Memory>, new: Memory, merges: bool) -> Remembered {
    let is_repeated = |it: &&mut Memory| {
        let is_used = !matches!(it.state, MemoryState::Superseded { .. });
        is_used
            && it.scope_id == new.scope_id
            && consolidate::is_repetition(&it.content, &new.content)
    };
    if let Some(known) = memories.iter_mut().find(is_repeated) {
        known.updated_ms = known.updated_ms.max(new.updated_ms);
        known.confidence = known.confidence.max(new.confidence);
        if new.is_active() {
            known.state = MemoryState::Active;
        }
        return match known.state {
            MemoryState::Review { .. } => Remembered::Waits(known.clone()),
            MemoryState::Active | MemoryState::Superseded { .. } => {
                Remembered::Again(known.clone())
            }
        };
    }
    let added = new.clone();
    if !new.is_active() {
        memories.push(new);
        return Remembered::Waits(added);
    }
    let read = ReadMemory::of(&new);
    let replaced = memories.iter_mut().filter(|it| {
        let is_near = merges && it.is_active() && it.scope_id == new.scope_id;
        is_near
            && it.updated_ms <= new.updated_ms
            && ReadMemory::of(it).relation(&read) != Relation::None
    });
    for old in replaced {
        old.state = MemoryState::Superseded {
            superseded_by: new.memory_id.clone(),
        };
    }
    memories.push(new);
    Remembered::New(added)
}

fn id(origin: &Origin, scope: &MemoryScope, content: &str) -> String {
    let all = format!("{}\n{scope}\n{content}\n{}", origin.agent, origin.at_ms);
    blake3::hash(all.as_bytes()).to_hex()[..16].to_owned()
}

/// A panic of another thread leaves the map usable, because each change is one call.
fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
