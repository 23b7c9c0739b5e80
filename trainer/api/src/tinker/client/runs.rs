//! The runs of this process, and which model of the server each of them is at the moment.
//!
//! A run outlives its model: loading a checkpoint makes a new model, and what was under way on the old one is of no
//! matter any more. A model is made when it is first needed, so that a run that goes on from a checkpoint, or that is only
//! asked what the base model thinks, makes none in vain.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{sampler::Sampler, session::Session};
use crate::{RunId, tinker::ModelId, wire::CreateRequest};

/// A run that nobody closes is dropped when there are so many.
const MOST: usize = 256;

#[derive(Debug)]
pub(super) struct Run(pub(super) tokio::sync::Mutex<State>);

/// What a run is at the moment.
#[derive(Debug)]
pub(super) struct State {
    pub(super) spec: CreateRequest,
    pub(super) model: Option<Model>,
    /// Optimiser steps behind it.
    pub(super) step: u64,
    /// A sampler of these weights; none where they have moved since.
    pub(super) sampler: Option<Arc<Sampler>>,
    /// When it was last asked for something.
    pub(super) used: Instant,
    /// The losses since the last step, and over how many tokens.
    pub(super) loss: (f64, u64),
}

/// A model at the server.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) session: Arc<Session>,
    pub(super) id: ModelId,
    /// Its calls are counted from 1.
    pub(super) next_seq: i32,
    /// Whether it is known what it holds. A call that was sent and not answered leaves it in doubt.
    pub(super) is_in_doubt: bool,
}

#[derive(Debug)]
pub(super) struct Runs {
    next: AtomicU32,
    runs: Mutex<BTreeMap<RunId, Arc<Run>>>,
}

// === impl State ===

impl State {
    /// The weights have moved.
    pub(super) fn moved(&mut self) {
        self.sampler = None;
        self.loss = (0.0, 0);
    }
}

// === impl Model ===

impl Model {
    /// A model that the server has just made, after so many calls.
    pub(super) fn new(session: Arc<Session>, id: ModelId, n_calls: i32) -> Self {
        Self {
            session,
            id,
            next_seq: n_calls + 1,
            is_in_doubt: false,
        }
    }
}

// === impl Runs ===

impl Runs {
    pub(super) fn new() -> Self {
        // Those of an earlier process are not to be taken for ours.
        let random = RandomState::new().build_hasher().finish();
        let first = u32::try_from(random & 0x7fff_ffff).unwrap_or(0);
        Self {
            next: AtomicU32::new(first),
            runs: Mutex::default(),
        }
    }

    /// A new one, without a model yet.
    pub(super) fn open(&self, spec: CreateRequest) -> RunId {
        let id = RunId::from(self.next.fetch_add(1, Ordering::Relaxed));
        let run = Arc::new(Run(tokio::sync::Mutex::new(State {
            spec,
            model: None,
            step: 0,
            sampler: None,
            used: Instant::now(),
            loss: (0.0, 0),
        })));
        let mut runs = self.lock();
        if runs.len() >= MOST {
            runs.pop_first();
        }
        runs.insert(id.clone(), run);
        id
    }

    pub(super) fn get(&self, id: &RunId) -> Option<Arc<Run>> {
        self.lock().get(id).cloned()
    }

    /// Takes the model of the run that was asked for nothing longest, of those that nothing is asked of now; none where no
    /// run has waited for so long, or is in doubt. Such a run begins again at its checkpoint.
    pub(super) fn take_idle(&self, idle: Duration) -> Option<Model> {
        let runs: Vec<Arc<Run>> = self.lock().values().cloned().collect();
        let free = runs.iter().filter_map(|run| run.0.try_lock().ok());
        let idle = free.filter(|state| {
            let model = state.model.as_ref();
            model.is_some_and(|model| model.is_in_doubt || state.used.elapsed() >= idle)
        });
        let mut longest = idle.min_by_key(|state| state.used)?;
        longest.moved();
        longest.model.take()
    }

    pub(super) fn close(&self, id: &RunId) -> Option<Arc<Run>> {
        self.lock().remove(id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunId, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
