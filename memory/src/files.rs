//! One file for each agent, `AGENT.jsonl`: a line of JSON for each memory, in the order of learning.
//!
//! A file is small, because a person has hundreds of facts and not millions. So each change writes the whole file anew and
//! renames it into place, under a lock that all processes of one home share. A read uses the copy in memory, unless the
//! file has changed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use metaclaw_chat::AgentId;

use crate::{
    error::MemoryError,
    lines::{read_lines, write_lines},
    memory::Memory,
};

/// The most memories of an agent. Beyond this, memories are deleted: first those that are not active, then the oldest.
const MAX_MEMORIES: usize = 5_000;

/// The files of all agents.
#[derive(Debug)]
pub(crate) struct MemoryFiles {
    dir: PathBuf,
    cached: Mutex<BTreeMap<AgentId, ReadFile>>,
}

/// A file as it was read last.
#[derive(Debug, Clone)]
struct ReadFile {
    stamp: Option<(SystemTime, u64)>,
    memories: Arc<Vec<Memory>>,
}

// === impl MemoryFiles ===

impl MemoryFiles {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            cached: Mutex::default(),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the agents that have memories.
    pub(crate) fn agents(&self) -> Result<Vec<AgentId>, MemoryError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(MemoryError::file(&self.dir)(error)),
        };
        let mut agents = Vec::new();
        for entry in entries {
            let name = entry.map_err(MemoryError::file(&self.dir))?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            agents.extend(name.and_then(|name| name.parse::<AgentId>().ok()));
        }
        agents.sort();
        Ok(agents)
    }

    pub(crate) fn path(&self, agent: &AgentId) -> PathBuf {
        self.dir.join(format!("{agent}.jsonl"))
    }

    /// Returns an agent's memories, from the file if it has changed.
    pub(crate) fn read(&self, agent: &AgentId) -> Result<Arc<Vec<Memory>>, MemoryError> {
        let path = self.path(agent);
        let stamp = match fs::metadata(&path) {
            Ok(found) => Some((
                found.modified().map_err(MemoryError::file(&path))?,
                found.len(),
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(MemoryError::file(&path)(error)),
        };
        let mut files = self.cache();
        if let Some(read) = files.get(agent).filter(|read| read.stamp == stamp) {
            return Ok(Arc::clone(&read.memories));
        }
        let memories = Arc::new(read_lines::<Memory>(&path)?);
        let read = ReadFile {
            stamp,
            memories: Arc::clone(&memories),
        };
        files.insert(agent.clone(), read);
        Ok(memories)
    }

    /// Changes an agent's memories, and writes the file if they differ.
    pub(crate) fn change<T>(
        &self,
        agent: &AgentId,
        change: impl FnOnce(&mut Vec<Memory>) -> T,
    ) -> Result<T, MemoryError> {
        let _lock = self.lock()?;
        let path = self.path(agent);
        let before = read_lines::<Memory>(&path)?;
        let mut memories = before.clone();
        let done = change(&mut memories);
        if memories != before {
            drop_least(&mut memories);
            write_lines(&path, &memories)?;
            // Two changes within one tick of the file system's clock leave the same stamp.
            self.cache().remove(agent);
        }
        Ok(done)
    }

    /// Waits for the lock that all changes need. It is held while the returned file is open.
    pub(crate) fn lock(&self) -> Result<File, MemoryError> {
        let path = self.dir.join(".lock");
        let locked = fs::create_dir_all(&self.dir).and_then(|()| {
            let mut options = File::options();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            file.lock()?;
            Ok(file)
        });
        locked.map_err(MemoryError::file(path))
    }

    /// A panic of another thread leaves the map usable, because each change is one call.
    fn cache(&self) -> MutexGuard<'_, BTreeMap<AgentId, ReadFile>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deletes the memories beyond [`MAX_MEMORIES`].
fn drop_least(memories: &mut Vec<Memory>) {
    let too_many = memories.len().saturating_sub(MAX_MEMORIES);
    if too_many == 0 {
        return;
    }
    let mut order: Vec<usize> = (0..memories.len()).collect();
    order.sort_by_key(|at| (memories[*at].is_active(), memories[*at].updated_ms));
    let gone: Vec<String> = order[..too_many]
        .iter()
        .map(|at| memories[*at].memory_id.clone())
        .collect();
    memories.retain(|it| !gone.contains(&it.memory_id));
}
