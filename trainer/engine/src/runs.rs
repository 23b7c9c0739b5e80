//! Training runs that are open, by id.

use std::collections::BTreeMap;

use metaclaw_trainer_terms::{CheckpointName, RunId};

use crate::rng::SplitMix64;
use crate::run::OpenRun;

#[derive(Debug)]
pub struct Runs {
    open: BTreeMap<RunId, OpenRun>,
    /// Ids by last use, the latest last.
    recent: Vec<RunId>,
    limit: RunLimit,
    ids: SplitMix64,
}

/// The number of runs that may be open. Opening one more closes the least recently used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimit {
    pub runs: usize,
    /// Bytes of them all; one that is open alone may take more.
    pub bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "training run \"{id}\" is not open here: create one, then load a checkpoint to go on from it"
)]
pub struct UnknownRun {
    /// The requested id.
    pub id: RunId,
}

// === impl Runs ===

impl Runs {
    pub fn new(limit: RunLimit, seed: u64) -> Self {
        Self {
            open: BTreeMap::new(),
            recent: Vec::new(),
            limit,
            ids: SplitMix64::new(seed),
        }
    }

    /// Opens a run and returns its id. If there are too many, the least recently used are closed and a warning is
    /// logged.
    pub fn open(&mut self, mut run: OpenRun) -> RunId {
        self.make_room(run.bytes());
        let id = loop {
            // The upper half.
            let [.., a, b, c, d] = self.ids.next_u64().to_le_bytes();
            let id = RunId::from(u32::from_le_bytes([a, b, c, d]));
            if !self.open.contains_key(&id) {
                break id;
            }
        };
        run.begin_line(id.as_str());
        self.open.insert(id.clone(), run);
        self.recent.push(id.clone());
        id
    }

    /// Closes the runs that were not used for longest, until there is room for one more of `bytes`.
    fn make_room(&mut self, bytes: usize) {
        let limit = self.limit;
        let is_full = |runs: &Self| {
            runs.open.len() >= limit.runs || runs.bytes().saturating_add(bytes) > limit.bytes
        };
        while !self.recent.is_empty() && is_full(self) {
            let oldest = self.recent.remove(0);
            self.open.remove(&oldest);
            tracing::warn!(run = %oldest, ?limit, "closed: too many training runs");
        }
    }

    /// Closes a run: its memory is given back.
    ///
    /// # Errors
    /// [`UnknownRun`].
    pub fn close(&mut self, id: &RunId) -> Result<(), UnknownRun> {
        self.recent.retain(|other| other != id);
        let closed = self.open.remove(id).map(|_| ());
        closed.ok_or_else(|| UnknownRun { id: id.clone() })
    }

    /// Bytes of all open runs.
    pub fn bytes(&self) -> usize {
        self.open.values().map(OpenRun::bytes).sum()
    }

    /// The checkpoints that open runs were saved as or loaded from.
    pub fn checkpoints(&self) -> Vec<CheckpointName> {
        let of_run = |run: &OpenRun| run.checkpoint().cloned();
        self.open.values().filter_map(of_run).collect()
    }

    /// The run of an id.
    ///
    /// # Errors
    /// [`UnknownRun`].
    pub fn get(&mut self, id: &RunId) -> Result<&mut OpenRun, UnknownRun> {
        let Some(run) = self.open.get_mut(id) else {
            return Err(UnknownRun { id: id.clone() });
        };
        self.recent.retain(|other| other != id);
        self.recent.push(id.clone());
        Ok(run)
    }
}
