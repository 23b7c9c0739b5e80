//! The state that all handlers share.

use std::{
    ops::Deref,
    sync::{Arc, Weak},
};

use metaclaw_trainer_api::{ApiKey, wire::Inference};
use metaclaw_trainer_chat::{self as chat, Front, ModelSource, bodies::Pool};
use metaclaw_trainer_terms::Sampler;

use crate::{
    host::Host,
    models::DefaultAdapter,
    serving::EngineSampler,
    tinker::shared::{Tinker, TinkerLimits},
    vllm::{Link, VllmServing},
};

/// Limits of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerLimits {
    /// Requests for text that may wait or run.
    pub(crate) n_queue: usize,
    /// The size of a body, in bytes. A batch of 64 sequences of 8,192 tokens is about 40 MB as lists of numbers.
    pub(crate) body: usize,
    /// The size of all training bodies in progress, in bytes.
    pub(crate) training_bodies: usize,
    /// The size of all other bodies that are being read, in bytes.
    pub(crate) text_bodies: usize,
    /// The number of training calls that may wait or run.
    pub(crate) n_training: usize,
    /// The size of sampled records, in bytes.
    pub(crate) sampled: usize,
    /// The limits of Tinker's dialect.
    pub(crate) tinker: TinkerLimits,
}

/// The state that all handlers share; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TrainerApp(Arc<ServerState>);

/// The content of [`TrainerApp`].
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) host: Arc<Host>,
    pub(crate) models: Arc<DefaultAdapter>,
    pub(crate) front: Front,
    pub(crate) training_bodies: Pool,
    pub(crate) tinker_bodies: Pool,
    pub(crate) tinker: Tinker,
    /// The server that answers chats in place of the engine, if there is one.
    pub(crate) inference: Option<Behind>,
    key: Option<ApiKey>,
    pub(crate) limits: ServerLimits,
}

/// The vLLM server that answers chats.
#[derive(Debug, Clone)]
pub(crate) struct Behind {
    pub(crate) link: Arc<Link>,
    /// The command and the log of its process, if it was started here.
    pub(crate) process: Option<(String, String)>,
}

// === impl Behind ===

impl Behind {
    /// The chat server's state for `/v1/health`.
    pub(crate) fn told(&self) -> Inference {
        let (command, log) = self.process.clone().unzip();
        Inference {
            command,
            log,
            ..self.link.told()
        }
    }
}

// === impl ServerLimits ===

impl Default for ServerLimits {
    fn default() -> Self {
        let chat = chat::Limits::default();
        Self {
            n_queue: chat.n_queue,
            body: chat.body,
            training_bodies: 512 << 20,
            text_bodies: chat.bodies,
            n_training: 64,
            sampled: chat.sampled,
            tinker: TinkerLimits::default(),
        }
    }
}

impl ServerLimits {
    fn of_chats(self) -> chat::Limits {
        chat::Limits {
            n_queue: self.n_queue,
            body: self.body,
            bodies: self.text_bodies,
            sampled: self.sampled,
        }
    }
}

// === impl TrainerApp ===

impl TrainerApp {
    /// A server whose engine answers chats as well.
    #[cfg(test)]
    pub(crate) fn new(host: Host, limits: ServerLimits, key: Option<ApiKey>) -> Self {
        Self::with_inference(Arc::new(host), limits, key, None)
    }

    /// A server whose chats `inference` answers, if it is given.
    pub(crate) fn with_inference(
        host: Arc<Host>,
        limits: ServerLimits,
        key: Option<ApiKey>,
        inference: Option<Behind>,
    ) -> Self {
        let models = Arc::new(DefaultAdapter::default());
        let engine = EngineSampler::new(Arc::clone(&host), Arc::clone(&models));
        let (source, sampler) = match &inference {
            Some(behind) => behind_front(VllmServing::new(Arc::clone(&behind.link), engine)),
            None => behind_front(engine),
        };
        let front = Front::with_source(source, sampler, limits.of_chats());
        Self(Arc::new(ServerState {
            models,
            front,
            training_bodies: Pool::new("training", limits.training_bodies, limits.n_training),
            tinker_bodies: Pool::new("Tinker", limits.tinker.bodies, limits.tinker.n_bodies),
            tinker: Tinker::new(limits.tinker),
            host,
            inference,
            key,
            limits,
        }))
    }

    /// A handle that does not keep the server alive.
    pub(crate) fn downgrade(&self) -> WeakApp {
        WeakApp(Arc::downgrade(&self.0))
    }

    /// The longest conversation that chats may have, in tokens; `None` before a model is loaded.
    pub(crate) fn context(&self) -> Option<u64> {
        let own = self.host.model().ok()?.context();
        let behind = self.inference.as_ref().and_then(|it| it.link.context());
        u64::try_from(behind.map_or(own, |it| it.min(own))).ok()
    }

    /// Returns the key that callers must send.
    pub(crate) fn key(&self) -> Option<ApiKey> {
        self.key.clone()
    }
}

fn behind_front<S: ModelSource + Sampler + 'static>(
    serving: S,
) -> (Arc<dyn ModelSource>, Arc<dyn Sampler>) {
    let serving = Arc::new(serving);
    (Arc::clone(&serving) as _, serving)
}

/// A weak handle on the state.
#[derive(Debug)]
pub(crate) struct WeakApp(Weak<ServerState>);

// === impl WeakApp ===

impl WeakApp {
    /// The state; `None` after the server has ended.
    pub(crate) fn upgrade(&self) -> Option<TrainerApp> {
        self.0.upgrade().map(TrainerApp)
    }
}

impl Deref for TrainerApp {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.0
    }
}
