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

use super::{sampler::ServerSampler, session::OpenSession};
use crate::{RunId, tinker::ModelId, wire::CreateRequest};

/// The most runs that are kept. Beyond this the oldest open runs are dropped.
const MOST: usize = 256;

#[derive(Debug)]
pub(super) struct ClientRun(pub(super) tokio::sync::Mutex<State>);

/// The current state of a run.
#[derive(Debug)]
pub(super) struct State {
    pub(super) spec: CreateRequest,
    pub(super) model: Option<ServerModel>,
    /// Optimiser steps behind it.
    pub(super) step: u64,
    /// A sampler of these weights; none where they have moved since.
    pub(super) sampler: Option<Arc<ServerSampler>>,
    /// When it was last asked for something.
    pub(super) used: Instant,
    /// The losses since the last step, and the number of their tokens.
    pub(super) loss: (f64, u64),
}

/// A model at the server.
#[derive(Debug)]
pub(super) struct ServerModel {
    pub(super) session: Arc<OpenSession>,
    pub(super) id: ModelId,
    /// The number of the next call, from 1.
    pub(super) next_seq: i32,
    /// Whether its content is known. A call that was sent and not answered makes it uncertain.
    pub(super) is_in_doubt: bool,
}

#[derive(Debug)]
pub(super) struct ClientRuns {
    next: AtomicU32,
    runs: Mutex<BTreeMap<RunId, Arc<ClientRun>>>,
}

// === impl State ===

impl State {
    /// Records that the weights have changed.
    pub(super) fn moved(&mut self) {
        self.sampler = None;
        self.loss = (0.0, 0);
    }
}

// === impl ServerModel ===

impl ServerModel {
    /// A model that the server has just made, after `n_calls` calls.
    pub(super) fn new(session: Arc<OpenSession>, id: ModelId, n_calls: i32) -> Self {
        Self {
            session,
            id,
            next_seq: n_calls + 1,
            is_in_doubt: false,
        }
    }
}

// === impl ClientRuns ===

impl ClientRuns {
    pub(super) fn new() -> Self {
        // A random part keeps ids of earlier processes apart from ours.
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
        let run = Arc::new(ClientRun(tokio::sync::Mutex::new(State {
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

    pub(super) fn get(&self, id: &RunId) -> Option<Arc<ClientRun>> {
        self.lock().get(id).cloned()
    }

    /// Takes the model of a run that has been idle for this long, or whose model is in doubt: of these, the run that was
    /// used least recently. `None` if there is none, or if all are in use now. The run begins again at its checkpoint.
    pub(super) fn take_idle(&self, idle: Duration) -> Option<ServerModel> {
        let runs: Vec<Arc<ClientRun>> = self.lock().values().cloned().collect();
        let free = runs.iter().filter_map(|run| run.0.try_lock().ok());
        let idle = free.filter(|state| {
            let model = state.model.as_ref();
            model.is_some_and(|model| model.is_in_doubt || state.used.elapsed() >= idle)
        });
        let mut longest = idle.min_by_key(|state| state.used)?;
        longest.moved();
        longest.model.take()
    }

    pub(super) fn close(&self, id: &RunId) -> Option<Arc<ClientRun>> {
        self.lock().remove(id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunId, Arc<ClientRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
