//! The state that all handlers share.

use std::sync::{Arc, Weak};

use metaclaw_trainer_api::{ApiKey, wire::Inference};
use metaclaw_trainer_chat::{self as chat, Front, ModelSource, bodies::Pool};
use metaclaw_trainer_terms::Sampler;

use crate::{
    host::Host,
    serving::{DefaultAdapter, EngineSampler},
    tinker::shared::{Tinker, TinkerLimits},
    vllm::{Link, StartedVllm, VllmServing},
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerLimits {
    /// Limits of chats and of other requests for text. A batch of 64 sequences of 8,192 tokens has a body of about 40 MB
    /// as lists of numbers.
    pub(crate) text: chat::Limits,
    /// The size of all training bodies in progress, in bytes.
    pub(crate) training_bodies: usize,
    pub(crate) n_training: usize,
    pub(crate) tinker: TinkerLimits,
}

/// The state that all handlers share; cheap to clone.
#[derive(Debug, Clone, derive_more::Deref)]
pub(crate) struct TrainerApp(Arc<ServerState>);

#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) host: Arc<Host>,
    pub(crate) models: Arc<DefaultAdapter>,
    pub(crate) front: Front,
    pub(crate) training_bodies: Pool,
    pub(crate) tinker_bodies: Pool,
    pub(crate) tinker: Tinker,
    pub(crate) inference: Option<Behind>,
    key: Option<ApiKey>,
    pub(crate) limits: ServerLimits,
}

#[derive(Debug, Clone)]
pub(crate) struct Behind {
    pub(crate) link: Arc<Link>,
    /// `None` if it ran before us.
    pub(crate) started: Option<StartedVllm>,
}

// === impl Behind ===

impl Behind {
    pub(crate) fn health(&self) -> Inference {
        let process = self.started.as_ref().and_then(StartedVllm::process);
        let told = process.map(|process| (process.command(), process.log()));
        let (command, log) = told.unzip();
        Inference {
            command,
            log,
            ..self.link.health()
        }
    }
}

// === impl ServerLimits ===

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            text: chat::Limits::default(),
            training_bodies: 512 << 20,
            n_training: 64,
            tinker: TinkerLimits::default(),
        }
    }
}

// === impl TrainerApp ===

impl TrainerApp {
    #[cfg(test)]
    pub(crate) fn new(host: Host, limits: ServerLimits, key: Option<ApiKey>) -> Self {
        Self::with_inference(Arc::new(host), limits, key, None)
    }

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
        let front = Front::with_source(source, sampler, limits.text);
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

    pub(crate) fn downgrade(&self) -> WeakApp {
        WeakApp(Arc::downgrade(&self.0))
    }

    /// The longest conversation that chats may have, in tokens; `None` before a model is loaded.
    pub(crate) fn context(&self) -> Option<u64> {
        let own = self.host.model().ok()?.context();
        let inference = self.inference.as_ref();
        let behind = inference.and_then(|behind| behind.link.context());
        u64::try_from(behind.map_or(own, |context| context.min(own))).ok()
    }

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

#[derive(Debug)]
pub(crate) struct WeakApp(Weak<ServerState>);

// === impl WeakApp ===

impl WeakApp {
    pub(crate) fn upgrade(&self) -> Option<TrainerApp> {
        self.0.upgrade().map(TrainerApp)
    }
}
