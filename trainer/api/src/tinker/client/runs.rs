//! The runs of this process, and the present model of each at the server.
//!
//! A run outlives its model: loading a checkpoint makes a new model, and unfinished calls on the old one do not matter
//! any more. A model is created when it is first needed, so that a run that continues from a checkpoint, or that only
//! asks the base model, does not create one in vain.

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

/// A run that nobody closes is dropped if there are this many.
const MOST: usize = 256;

#[derive(Debug)]
pub(super) struct Run(pub(super) tokio::sync::Mutex<State>);

/// The state of a run.
#[derive(Debug)]
pub(super) struct State {
    pub(super) spec: CreateRequest,
    pub(super) model: Option<Model>,
    /// The number of optimiser steps.
    pub(super) step: u64,
    /// A sampler of these weights, or `None` if they have changed since.
    pub(super) sampler: Option<Arc<Sampler>>,
    /// When it was last used.
    pub(super) used: Instant,
    /// The losses since the last step, and the number of their tokens.
    pub(super) loss: (f64, u64),
}

/// A model at the server.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) session: Arc<Session>,
    pub(super) id: ModelId,
    /// Its calls are counted from 1.
    pub(super) next_seq: i32,
    /// Whether its content is known. A call that was sent and not answered makes it uncertain.
    pub(super) is_in_doubt: bool,
}

#[derive(Debug)]
pub(super) struct Runs {
    next: AtomicU32,
    runs: Mutex<BTreeMap<RunId, Arc<Run>>>,
}

// === impl State ===

impl State {
    /// Records that the weights have changed.
    pub(super) fn moved(&mut self) {
        self.sampler = None;
        self.loss = (0.0, 0);
    }
}

// === impl Model ===

impl Model {
    /// Creates the record of a model that the server has just created, after this many calls.
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
        // Runs of an earlier process must not be confused with these.
        let random = RandomState::new().build_hasher().finish();
        let first = u32::try_from(random & 0x7fff_ffff).unwrap_or(0);
        Self {
            next: AtomicU32::new(first),
            runs: Mutex::default(),
        }
    }

    /// Creates a run without a model.
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

    /// Takes the model of the least recently used run that has no call in progress; returns `None` if no run has been
    /// idle long enough, or its content is uncertain. Such a run begins again at its checkpoint.
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
