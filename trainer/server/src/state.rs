//! What every handler shares.

use std::{ops::Deref, sync::Arc};

use metaclaw_trainer_api::ApiKey;
use metaclaw_trainer_chat::{self as chat, Front, bodies::Pool};

use crate::{host::Host, models::Models, serving::Serving};

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
}

/// What every handler shares; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Shared>);

/// What every handler shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) host: Arc<Host>,
    pub(crate) models: Arc<Models>,
    pub(crate) front: Front,
    pub(crate) training_bodies: Pool,
    key: Option<ApiKey>,
    pub(crate) limits: Limits,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        let chat = chat::Limits::default();
        Self {
            n_queue: chat.n_queue,
            body: chat.body,
            training_bodies: 512 << 20,
            text_bodies: chat.bodies,
            n_training: 64,
            sampled: chat.sampled,
        }
    }
}

impl Limits {
    fn of_chats(self) -> chat::Limits {
        chat::Limits {
            n_queue: self.n_queue,
            body: self.body,
            bodies: self.text_bodies,
            sampled: self.sampled,
        }
    }
}

// === impl App ===

impl App {
    pub(crate) fn new(host: Host, limits: Limits, key: Option<ApiKey>) -> Self {
        let (host, models) = (Arc::new(host), Arc::new(Models::default()));
        let serving = Arc::new(Serving::new(Arc::clone(&host), Arc::clone(&models)));
        let front = Front::with_source(Arc::clone(&serving) as _, serving, limits.of_chats());
        Self(Arc::new(Shared {
            models,
            front,
            training_bodies: Pool::new("training", limits.training_bodies, limits.n_training),
            host,
            key,
            limits,
        }))
    }

    /// The key that callers must show.
    pub(crate) fn key(&self) -> Option<ApiKey> {
        self.key.clone()
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
