//! The adapters that the log names, tried at the training server.
//!
//! A server may have lost one, or have been given another base model since; asked for it, it would
//! refuse every chat of that agent, and an agent without chats never trains a new one. So each is tried
//! before anybody is sent there, and where it cannot serve the base model answers in its place.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::AgentId;
use metaclaw_control::{
    adapters::LostAdapters, policy_context::PolicyContext, status::LostAdapter,
};
use metaclaw_gateway::Serving;
use metaclaw_trainer_api::{
    BackendError, ErrorCode, TrainingBackend,
    wire::{InferenceState, SampleRequest},
};
use metaclaw_turns::TurnLog;
use tokio::time::timeout;
use tracing::{info, warn};

pub(super) const HEALTH_DEADLINE: Duration = Duration::from_secs(3);
/// How long loading may keep chats waiting; what is not loaded then is loaded when it is asked for.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct AdapterLoader {
    pub(super) serving: Arc<Serving>,
    pub(super) log: TurnLog,
    pub(super) backend: Arc<dyn TrainingBackend>,
    pub(super) lost: LostAdapters,
    pub(super) context: PolicyContext,
    pub(super) known: KnownAdapters,
}

#[derive(Debug)]
pub(super) struct KnownAdapters {
    found: Vec<(AgentId, String, bool)>,
    inference: Option<InferenceState>,
    is_settled: bool,
}

impl Default for KnownAdapters {
    fn default() -> Self {
        Self {
            found: Vec::new(),
            inference: None,
            is_settled: true,
        }
    }
}

enum Tried {
    Serves,
    Lacking(BackendError),
    /// The server could not say.
    Unknown,
}

// === impl AdapterLoader ===

impl AdapterLoader {
    /// Has each one loaded; an agent whose adapter cannot serve gets the base model, and its adapter again when it can.
    pub(super) async fn load(&mut self) {
        self.ask_context().await;
        self.known.found = self.find().await.unwrap_or_default();
        self.load_all().await;
    }

    /// How long conversations may be: the server may have another model than before.
    async fn ask_context(&self) {
        // One that does not answer is away, which is seen next.
        if let Ok(Ok(health)) = timeout(HEALTH_DEADLINE, self.backend.health()).await {
            self.context.note(health.context);
        }
    }

    /// The same where others are to serve, or are there, than when this was last asked, and where the server that answers chats
    /// may be asked again: it was started anew, and loads each adapter again.
    pub(super) async fn load_if_changed(&mut self, inference: Option<InferenceState>) {
        let was = std::mem::replace(&mut self.known.inference, inference);
        // A server that cannot say is away, which is seen next.
        let Some(found) = self.find().await else {
            return;
        };
        let is_back = inference == Some(InferenceState::Ready) && was != inference;
        let is_due = inference == Some(InferenceState::Ready) && !self.known.is_settled;
        if self.known.found != found || is_back || is_due {
            self.known.found = found;
            self.load_all().await;
        }
    }

    pub(super) async fn check(&mut self) {
        // If the server does not answer, the task that watches it notices.
        if let Ok(Ok(health)) = timeout(HEALTH_DEADLINE, self.backend.health()).await {
            let inference = health.inference.map(|server| server.state);
            self.load_if_changed(inference).await;
        }
    }

    /// Which are to serve, and whether they are there.
    async fn find(&self) -> Option<Vec<(AgentId, String, bool)>> {
        let there = self.backend.adapters().await.ok()?;
        let is_there = |name: &str| there.iter().any(|adapter| adapter.name.as_str() == name);
        let served = self.served().await?.into_iter();
        let found = served.map(|(agent, name)| {
            let is_there = is_there(&name);
            (agent, name, is_there)
        });
        Some(found.collect())
    }

    async fn load_all(&mut self) {
        let loaded = timeout(LOAD_TIMEOUT, self.load_each()).await;
        if loaded.is_err() {
            warn!("adapters take long to load: chats do not wait for the rest");
        }
        self.known.is_settled = loaded.unwrap_or(false);
    }

    async fn served(&self) -> Option<Vec<(AgentId, String)>> {
        let served = self.log.serving().await;
        let failed = |error: &_| warn!(%error, "the log does not say which adapters are served");
        served.inspect_err(failed).ok()
    }

    async fn load_each(&self) -> bool {
        let Some(served) = self.served().await else {
            return true;
        };
        self.lost.with(|lost| {
            // Another one serves that agent by now.
            lost.retain(|agent, it| {
                let still =
                    |(whose, name): &(AgentId, String)| whose == agent && *name == it.adapter;
                served.iter().any(still)
            });
        });
        let mut is_settled = true;
        for (agent, adapter) in served {
            match self.try_one(&adapter).await {
                Tried::Serves => self.found_again(&agent, &adapter),
                Tried::Lacking(error) => self.lose(&agent, &adapter, &error),
                // Requests that need an adapter that is missing get an error of their own.
                Tried::Unknown => is_settled = false,
            }
        }
        is_settled
    }

    /// Has it loaded wherever it is to answer, and asks the training server for a token of it: the server that answers chats may
    /// refuse what the training server takes.
    async fn try_one(&self, adapter: &str) -> Tried {
        let Ok(name) = adapter.parse() else {
            return Tried::Unknown;
        };
        match self.backend.load_adapter(name).await {
            Err(error) if is_lacking(&error) => return Tried::Lacking(error),
            Err(error) if error.status() == Some(503) => return Tried::Unknown,
            // Not every server has this call.
            Ok(_) | Err(_) => {}
        }
        let request = SampleRequest::one_token(adapter.to_owned());
        match self.backend.sample(request).await {
            Ok(_) => Tried::Serves,
            Err(error) if is_lacking(&error) => Tried::Lacking(error),
            Err(_) => Tried::Unknown,
        }
    }

    fn found_again(&self, agent: &AgentId, adapter: &str) {
        if self.lost.with(|lost| lost.remove(agent)).is_some() {
            info!(%agent, adapter, "this adapter is there again, and serves");
            self.serving.set(agent, Some(adapter));
        }
    }

    fn lose(&self, agent: &AgentId, adapter: &str, error: &BackendError) {
        self.serving.withdraw(adapter);
        let lost = LostAdapter {
            agent: agent.clone(),
            adapter: adapter.to_owned(),
            why: error.to_string(),
        };
        let was = self
            .lost
            .with(|all| all.insert(agent.clone(), lost.clone()));
        if was.as_ref() != Some(&lost) {
            warn!(%agent, adapter, %error, "the base model serves this agent until the adapter is there again, or a new one is learned");
        }
    }
}

fn is_lacking(error: &BackendError) -> bool {
    error.code().is_some_and(ErrorCode::is_unfit_adapter)
}
