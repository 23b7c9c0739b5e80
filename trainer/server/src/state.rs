//! What every handler shares.

use std::{
    ops::Deref,
    sync::{Arc, Weak},
};

use metaclaw_trainer_api::ApiKey;

use crate::{
    bodies::Pool,
    host::Host,
    models::Models,
    queue::Queue,
    sampled::{self, SampledRing},
    tinker::shared::{Tinker, TinkerLimits},
};

/// Bounds of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Requests for text that may wait or run.
    pub(crate) n_queue: usize,
    /// Bytes of a body. A batch of 64 sequences of 8,192 tokens is about 40 MB as lists of numbers.
    pub(crate) body: usize,
    /// Bytes of training bodies that are being worked on.
    pub(crate) training_bodies: usize,
    /// Bytes of other bodies that are being read.
    pub(crate) text_bodies: usize,
    /// Training calls that may wait or run.
    pub(crate) n_training: usize,
    /// Bytes of sampled records.
    pub(crate) sampled: usize,
    /// Those of Tinker's dialect.
    pub(crate) tinker: TinkerLimits,
}

/// What every handler shares; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Shared>);

/// What every handler shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) models: Models,
    pub(crate) queue: Queue,
    pub(crate) sampled: SampledRing,
    pub(crate) training_bodies: Pool,
    pub(crate) text_bodies: Pool,
    pub(crate) tinker_bodies: Pool,
    pub(crate) tinker: Tinker,
    key: Option<ApiKey>,
    pub(crate) limits: Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            n_queue: 256,
            body: 256 << 20,
            training_bodies: 512 << 20,
            text_bodies: 64 << 20,
            n_training: 64,
            sampled: sampled::MAX_BYTES,
            tinker: TinkerLimits::default(),
        }
    }
}

// === impl App ===

impl App {
    pub(crate) fn new(host: Host, limits: Limits, key: Option<ApiKey>) -> Self {
        Self(Arc::new(Shared {
            models: Models::default(),
            queue: Queue::new(limits.n_queue),
            sampled: SampledRing::new(limits.sampled, sampled::KEEP),
            training_bodies: Pool::new("training", limits.training_bodies, limits.n_training),
            text_bodies: Pool::new("chats", limits.text_bodies, limits.n_queue),
            tinker_bodies: Pool::new("Tinker", limits.tinker.bodies, limits.tinker.n_bodies),
            tinker: Tinker::new(limits.tinker),
            host,
            key,
            limits,
        }))
    }

    /// For who must not keep it alive.
    pub(crate) fn downgrade(&self) -> WeakApp {
        WeakApp(Arc::downgrade(&self.0))
    }

    /// The key that callers must show.
    pub(crate) fn key(&self) -> Option<ApiKey> {
        self.key.clone()
    }
}

/// What every handler shares, while there is a server.
#[derive(Debug)]
pub(crate) struct WeakApp(Weak<Shared>);

// === impl WeakApp ===

impl WeakApp {
    /// None once the server has gone.
    pub(crate) fn upgrade(&self) -> Option<App> {
        self.0.upgrade().map(App)
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
