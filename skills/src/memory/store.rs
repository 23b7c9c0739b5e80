//! The store of memories: what is remembered, given to sessions and forgotten.
//!
//! Each agent has a file, `AGENT.jsonl`, with a line of JSON for each memory, in the order of learning. A person has
//! hundreds of facts and not millions, so each change writes the whole file anew and renames it into place, under a lock
//! that all processes of one home share. A read uses the copy in memory while the file's stamp is the same.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use metaclaw_chat::{AgentId, SessionId, if_there, now_ms, one_line, whole_ms};
use serde::{Deserialize, Serialize};

use super::{
    MAX_CHARS, Memory, MemoryError, MemoryKind, MemoryScope, MemoryState,
    facts::Fact,
    recall::{self, MemoryHit, MemoryPolicy, Recall},
    relation::{Consolidated, ReadMemory, Relation, consolidate, is_repetition},
    relevance::Texts,
};
use crate::{
    config::MemoryConfig,
    file::{FileStamp, failed, lock, read_lines, write_lines, write_private},
    guard::suspicions,
    journal::Origin,
};

/// The most memories of an agent. Beyond this, memories are deleted: first those that are not active, then the oldest.
const MAX_MEMORIES: usize = 5_000;
const MAX_SESSIONS: usize = 4_096;
const BY_HAND: f32 = 1.0;

/// Memories of every agent. Clones share one store.
#[derive(Debug, Clone)]
pub struct MemoryStore(Arc<StoreInner>);

#[derive(Debug)]
struct StoreInner {
    dir: PathBuf,
    config: MemoryConfig,
    /// Agents that have a memory of their own.
    remembering: BTreeSet<AgentId>,
    files: Mutex<BTreeMap<AgentId, ReadFile>>,
    texts: Texts,
    scopes: Mutex<BTreeMap<(AgentId, SessionId), MemoryScope>>,
}

#[derive(Debug)]
struct ReadFile {
    stamp: Option<FileStamp>,
    memories: Arc<Vec<Memory>>,
}

/// What the store did with a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Remembered {
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
        Self::open_beside(dir, config, [])
    }

    /// Returns a store as [`Self::open`] does. These agents have a memory of their own, and need none unless
    /// `memory.enabled` says so.
    pub fn open_beside(
        dir: impl Into<PathBuf>,
        config: MemoryConfig,
        remembering: impl IntoIterator<Item = AgentId>,
    ) -> Self {
        Self(Arc::new(StoreInner {
            dir: dir.into(),
            config,
            remembering: remembering.into_iter().collect(),
            files: Mutex::default(),
            texts: Texts::default(),
            scopes: Mutex::default(),
        }))
    }

    pub fn config(&self) -> &MemoryConfig {
        &self.0.config
    }

    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Returns whether facts are remembered for an agent, and its sessions get them.
    pub fn is_on_for(&self, agent: &AgentId) -> bool {
        let has_none = !self.0.remembering.contains(agent);
        self.0.config.enabled.unwrap_or(has_none)
    }

    /// Returns the scope of requests that name none.
    pub fn default_scope(&self) -> MemoryScope {
        MemoryScope::new(&self.0.config.scope)
    }

    /// Records the scope that a request named. The session keeps it.
    pub fn note_scope(&self, agent: &AgentId, session: &SessionId, scope: MemoryScope) {
        let mut scopes = metaclaw_chat::lock(&self.0.scopes);
        let key = (agent.clone(), session.clone());
        if scopes.len() >= MAX_SESSIONS && !scopes.contains_key(&key) {
            scopes.clear();
        }
        scopes.insert(key, scope);
    }

    /// Returns the scope of a session.
    pub fn scope_of(&self, agent: &AgentId, session: &SessionId) -> MemoryScope {
        let scopes = metaclaw_chat::lock(&self.0.scopes);
        let known = scopes.get(&(agent.clone(), session.clone())).cloned();
        known.unwrap_or_else(|| self.default_scope())
    }

    /// Returns how memories are chosen.
    ///
    /// # Errors
    /// If the original's `policy.json` is there and cannot be read.
    pub fn policy(&self) -> Result<MemoryPolicy, MemoryError> {
        let given = self.0.config.policy_path.clone();
        let path = given.unwrap_or_else(|| self.dir().join("policy.json"));
        Ok(MemoryPolicy::read(&self.0.config, &path).map_err(failed(path))?)
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
        let new = memory(fact, scope, origin)?;
        let why = suspicions(&fact.content);
        self.put(if why.is_empty() {
            new
        } else {
            let state = MemoryState::Review { why };
            Memory { state, ..new }
        })
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
        let mut new = memory(&fact, scope, Origin::by_hand(agent, None, now_ms()))?;
        if is_pinned {
            new.importance = 1.0;
        }
        let (Remembered::New(memory) | Remembered::Again(memory) | Remembered::Waits(memory)) =
            self.put(new)?;
        Ok(memory)
    }

    fn put(&self, new: Memory) -> Result<Remembered, MemoryError> {
        let agent = new.origin.agent.clone();
        let merges = self.0.config.auto_consolidate;
        self.change(&agent, |memories| add(memories, new, merges))
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
        let (own, shared) = (self.read(agent)?, self.read(&AgentId::shared())?);
        let shared = shared.iter().filter(|memory| memory.origin.agent != *agent);
        let active: Vec<&Memory> = (own.iter().chain(shared))
            .filter(|memory| memory.is_active() && memory.scope_id == *scope)
            .collect();
        let now = now_ms();
        let recall = recall::choose(&active, &self.0.texts, query, &policy, now);
        if let (Some(path), Some(_)) = (&self.0.config.telemetry_path, &recall.block)
            && let Err(error) = recall.note(path, agent, scope, now).map_err(failed(path))
        {
            tracing::warn!(%error, "memory.telemetry_path gets no line about a recall");
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
        let active: Vec<&Memory> = memories
            .iter()
            .filter(|memory| memory.is_active())
            .collect();
        let mut hits = recall::search(&active, &self.0.texts, query, &self.policy()?, now_ms());
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
            None => self.agents()?,
        };
        let mut all = Vec::new();
        for agent in agents {
            let memories = self.read(&agent)?;
            let is_wanted = |memory: &&Memory| scope.is_none_or(|scope| memory.scope_id == *scope);
            all.extend(memories.iter().filter(is_wanted).cloned());
        }
        all.sort_by_key(|memory| memory.origin.at_ms);
        Ok(all)
    }

    /// Returns one memory.
    ///
    /// # Errors
    /// [`MemoryError`] if a file cannot be read.
    pub fn get(&self, agent: Option<&AgentId>, id: &str) -> Result<Option<Memory>, MemoryError> {
        let mut all = self.list(agent, None)?.into_iter();
        Ok(all.find(|memory| memory.memory_id == id))
    }

    /// Deletes a memory, those that it had replaced, and those that these had replaced.
    ///
    /// # Errors
    /// [`MemoryError::Unknown`] if there is none with this id, or an error of its file.
    pub fn forget(&self, agent: Option<&AgentId>, id: &str) -> Result<Memory, MemoryError> {
        let found = self.get(agent, id)?;
        let known = found.ok_or_else(|| MemoryError::Unknown(id.to_owned()))?;
        self.change(&known.origin.agent, |memories| {
            let mut next = vec![id.to_owned()];
            while let Some(id) = next.pop() {
                let goes =
                    |memory: &mut Memory| memory.memory_id == id || memory.is_replaced_by(&id);
                let gone: Vec<Memory> = memories.extract_if(.., goes).collect();
                next.extend(
                    gone.into_iter()
                        .map(|memory| memory.memory_id)
                        .filter(|other| *other != id),
                );
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
        let goes = |memory: &Memory| {
            let Origin { agent, session, .. } = &memory.origin;
            session
                .as_ref()
                .is_some_and(|session| is_gone(agent, session))
        };
        let mut gone = Vec::new();
        for agent in self.agents()? {
            if !self.read(&agent)?.iter().any(goes) {
                continue;
            }
            gone.extend(self.change(&agent, |memories| {
                let gone: Vec<Memory> = memories.extract_if(.., |memory| goes(memory)).collect();
                for memory in memories.iter_mut() {
                    if gone
                        .iter()
                        .any(|gone| memory.is_replaced_by(&gone.memory_id))
                    {
                        memory.state = MemoryState::Active;
                    }
                }
                // What is used again may be older than another memory that is used.
                if self.0.config.auto_consolidate {
                    consolidate(memories);
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
        let is_stale = |memory: &Memory| {
            let waits = matches!(memory.state, MemoryState::Review { .. });
            let waited_ms = certain_ms.map_or(0, |now| now.saturating_sub(memory.updated_ms));
            waits && stale_ms > 0 && waited_ms > stale_ms
        };
        let mut done = Consolidated::default();
        for agent in self.agents()? {
            self.change(&agent, |memories| {
                let before = memories.len();
                memories.retain(|memory| !is_stale(memory));
                done.dropped += before - memories.len();
                if self.0.config.auto_consolidate {
                    let merged = consolidate(memories);
                    done.merged += merged.merged;
                    done.superseded += merged.superseded;
                }
            })?;
        }
        Ok(done)
    }
}

/// The files.
impl MemoryStore {
    fn agents(&self) -> Result<Vec<AgentId>, MemoryError> {
        let entries = if_there(fs::read_dir(self.dir())).and_then(|entries| {
            let entries = entries.into_iter().flatten();
            entries.collect::<io::Result<Vec<_>>>()
        });
        let agent = |entry: fs::DirEntry| {
            let name = entry.file_name();
            name.to_str()?.strip_suffix(".jsonl")?.parse().ok()
        };
        let entries = entries.map_err(failed(self.dir()))?.into_iter();
        let mut agents: Vec<AgentId> = entries.filter_map(agent).collect();
        agents.sort();
        Ok(agents)
    }

    fn path(&self, agent: &AgentId) -> PathBuf {
        self.dir().join(format!("{agent}.jsonl"))
    }

    fn read(&self, agent: &AgentId) -> Result<Arc<Vec<Memory>>, MemoryError> {
        let path = self.path(agent);
        let stamp = FileStamp::read(&path).map_err(failed(&path))?;
        let mut files = metaclaw_chat::lock(&self.0.files);
        if let Some(known) = files.get(agent).filter(|known| known.stamp == stamp) {
            return Ok(Arc::clone(&known.memories));
        }
        let memories = Arc::new(read_lines(&path)?);
        let read = ReadFile {
            stamp,
            memories: Arc::clone(&memories),
        };
        files.insert(agent.clone(), read);
        Ok(memories)
    }

    fn change<T>(
        &self,
        agent: &AgentId,
        change: impl FnOnce(&mut Vec<Memory>) -> T,
    ) -> Result<T, MemoryError> {
        let done = self.change_lines(&self.path(agent), |memories| {
            let done = change(memories);
            drop_least(memories);
            done
        });
        // Two changes within one tick of the file system's clock leave the same stamp.
        metaclaw_chat::lock(&self.0.files).remove(agent);
        done
    }

    /// Changes the lines of a file under the lock, and writes it if they differ.
    pub(super) fn change_lines<L, T>(
        &self,
        path: &Path,
        change: impl FnOnce(&mut Vec<L>) -> T,
    ) -> Result<T, MemoryError>
    where
        L: Clone + PartialEq + Serialize + for<'de> Deserialize<'de>,
    {
        let _lock = lock(self.dir())?;
        let before: Vec<L> = read_lines(path)?;
        let mut lines = before.clone();
        let done = change(&mut lines);
        if lines != before {
            write_lines(path, &lines, write_private)?;
        }
        Ok(done)
    }
}

fn memory(fact: &Fact, scope: &MemoryScope, origin: Origin) -> Result<Memory, MemoryError> {
    let content = one_line(&fact.content.replace(char::is_control, " "));
    let length = content.chars().count();
    match length {
        0 => return Err(MemoryError::Empty),
        1..=MAX_CHARS => {}
        _ => return Err(MemoryError::TooLong { length }),
    }
    let key = format!("{}\n{scope}\n{content}\n{}", origin.agent, origin.at_ms);
    Ok(Memory {
        memory_id: blake3::hash(key.as_bytes()).to_hex()[..16].to_owned(),
        scope_id: scope.clone(),
        kind: fact.kind,
        said: fact.said.clone().filter(|said| *said != content),
        content,
        importance: fact.kind.importance(),
        confidence: fact.confidence,
        updated_ms: origin.at_ms,
        origin,
        state: MemoryState::Active,
    })
}

fn add(memories: &mut Vec<Memory>, new: Memory, merges: bool) -> Remembered {
    let is_repeated = |known: &&mut Memory| {
        let is_used = !matches!(known.state, MemoryState::Superseded { .. });
        is_used && known.scope_id == new.scope_id && is_repetition(&known.content, &new.content)
    };
    if let Some(known) = memories.iter_mut().find(is_repeated) {
        known.updated_ms = known.updated_ms.max(new.updated_ms);
        known.confidence = known.confidence.max(new.confidence);
        if new.is_pinned() {
            known.importance = new.importance;
        }
        if new.is_active() {
            known.state = MemoryState::Active;
        }
        return if known.is_active() {
            Remembered::Again(known.clone())
        } else {
            Remembered::Waits(known.clone())
        };
    }
    memories.push(new.clone());
    if !new.is_active() {
        return Remembered::Waits(new);
    }
    let read = ReadMemory::new(&new);
    for old in memories.iter_mut().filter(|_| merges) {
        let is_beside = old.is_active()
            && old.memory_id != new.memory_id
            && old.scope_id == new.scope_id
            && old.updated_ms <= new.updated_ms;
        if is_beside && ReadMemory::new(old).relation(&read) != Relation::None {
            let superseded_by = new.memory_id.clone();
            old.state = MemoryState::Superseded { superseded_by };
        }
    }
    Remembered::New(new)
}

fn drop_least(memories: &mut Vec<Memory>) {
    let too_many = memories.len().saturating_sub(MAX_MEMORIES);
    let mut order: Vec<usize> = (0..memories.len()).collect();
    order.sort_by_key(|at| (memories[*at].is_active(), memories[*at].updated_ms));
    let mut gone = order[..too_many].to_vec();
    gone.sort_unstable();
    for at in gone.into_iter().rev() {
        memories.remove(at);
    }
}
