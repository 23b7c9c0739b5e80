//! Keeps the gateway's pointer to the policy model true: its adapters are loaded before anybody is sent there.
//!
//! Of our own trainer, its supervisor says when it answers. Nobody says of a training server elsewhere when it is started
//! again, has no model, or has lost an adapter, so it is asked every few seconds.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use metaclaw_chat::Secret;
use metaclaw_control::{
    compare::{BASE, PolicyAddress},
    status::{TrainerState, TrainerStatus},
};
use metaclaw_gateway::Endpoint;
use metaclaw_trainer_api::{
    BackendError,
    wire::{CreateRequest, InferenceState},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::adapters::{AdapterLoader, HEALTH_DEADLINE};

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a provider that answers or refuses is looked at: looking costs it something.
const LOOK_AT_CLOUD: Duration = Duration::from_secs(20);

pub(super) struct RemoteFollower {
    pub(super) adapters: AdapterLoader,
    pub(super) url: String,
    /// How it is called where that is not its address: chats may be answered in front of it.
    pub(super) shown: Option<String>,
    pub(super) key: Option<Secret>,
    /// `rl.model`.
    pub(super) model: Option<String>,
    pub(super) status: watch::Sender<TrainerStatus>,
    /// It refuses: the key, the account, or the model.
    pub(super) refuses: bool,
}

// === impl RemoteFollower ===

impl RemoteFollower {
    pub(super) fn policy_address(&self) -> PolicyAddress {
        PolicyAddress {
            url: Some(self.url.clone()),
            trainer: None,
            key: self.key.as_ref().map(|key| key.expose().to_owned()),
        }
    }

    pub(super) async fn run(mut self, ending: CancellationToken) {
        let follow = async {
            loop {
                self.check().await;
                sleep(self.pause()).await;
            }
        };
        ending.run_until_cancelled(follow).await;
    }

    /// Until it is looked at again: soon where somebody waits for it to answer.
    fn pause(&self) -> Duration {
        let answers = matches!(*self.status.borrow(), TrainerStatus::Answers { .. });
        if (answers || self.refuses) && self.shown.is_some() {
            LOOK_AT_CLOUD
        } else {
            LOOK_EVERY
        }
    }

    fn shown(&self) -> String {
        self.shown.clone().unwrap_or_else(|| self.url.clone())
    }

    async fn check(&mut self) {
        self.refuses = false;
        let status = match timeout(HEALTH_DEADLINE, self.adapters.backend.health()).await {
            Err(_) => self.away(format!("no answer within {} s", HEALTH_DEADLINE.as_secs())),
            Ok(Err(error)) => {
                self.refuses = error.status().is_some_and(|one| (400..500).contains(&one));
                self.away(error.words())
            }
            Ok(Ok(health)) if health.model.is_empty() => self.give_model().await,
            Ok(Ok(health)) => {
                let inference = health.inference.map(|server| server.state);
                self.answers(health.model, inference).await
            }
        };
        self.status.send_if_modified(|was| {
            let is_new = *was != status;
            match &status {
                TrainerStatus::Away { url, why } if is_new => {
                    warn!(url, why, "the training server cannot be used");
                }
                TrainerStatus::WithoutModel { url, why } if is_new => {
                    warn!(url, why, "the training server has no model");
                }
                TrainerStatus::Answers { url, model } if is_new => {
                    info!(url, model, "the training server answers");
                }
                _ => {}
            }
            *was = status;
            is_new
        });
    }

    /// The gateway sees by itself that it does not answer, and asks it again when it does.
    fn away(&self, why: String) -> TrainerStatus {
        let url = self.shown();
        TrainerStatus::Away { url, why }
    }

    async fn answers(&mut self, model: String, inference: Option<InferenceState>) -> TrainerStatus {
        // What was away may have been started again, with other files.
        let was_there = matches!(*self.status.borrow(), TrainerStatus::Answers { .. });
        if was_there {
            self.adapters.load_if_changed(inference).await;
        } else {
            self.adapters.load().await;
        }
        let serving = &self.adapters.serving;
        // One that fell silent is asked from now on, and not only after the gateway has looked again.
        if serving.policy().is_none() || serving.is_silent() {
            match Endpoint::new(&self.url, self.key.clone(), BASE) {
                // What answers in front of a provider passes its refusals on.
                Ok(endpoint) if self.shown.is_some() => {
                    serving.set_policy(Some(endpoint.by_account()));
                }
                Ok(endpoint) => serving.set_policy(Some(endpoint)),
                Err(error) => error!(%error, "the training server's address cannot be used"),
            }
        }
        let url = self.shown();
        TrainerStatus::Answers { url, model }
    }

    /// It was started without a model: it loads the one that a run is to be of.
    async fn give_model(&mut self) -> TrainerStatus {
        // Meanwhile the next upstream answers, where there is one.
        self.adapters.serving.set_policy(None);
        let url = self.shown();
        if self.model.is_none() {
            let why = "start it with one, or say in rl.model which it is to load".to_owned();
            return TrainerStatus::WithoutModel { url, why };
        }
        match self.load_model().await {
            Ok(model) => self.answers(model, None).await,
            Err(error) => {
                let why = error.to_string();
                TrainerStatus::WithoutModel { url, why }
            }
        }
    }

    async fn load_model(&self) -> Result<String, BackendError> {
        let backend = &self.adapters.backend;
        let created = backend.create_run(CreateRequest::default()).await?;
        if let Err(error) = backend.close_run(created.session_id).await {
            // It goes when the server wants its memory.
            debug!(%error, "not closed");
        }
        Ok(created.model)
    }
}

pub(super) struct TrainerFollower {
    pub(super) adapters: AdapterLoader,
    pub(super) key: String,
    pub(super) trainer: watch::Receiver<TrainerState>,
    pub(super) has_inference: bool,
}

// === impl TrainerFollower ===

impl TrainerFollower {
    pub(super) async fn run(mut self, ending: CancellationToken) {
        let follow = async {
            loop {
                self.follow().await;
                if !self.has_changed().await {
                    return;
                }
            }
        };
        ending.run_until_cancelled(follow).await;
    }

    /// Waits until the trainer's state has changed, and meanwhile sees that what answers chats for it has the adapters; false where
    /// the trainer's supervisor has ended.
    async fn has_changed(&mut self) -> bool {
        while self.has_inference {
            tokio::select! {
                changed = self.trainer.changed() => return changed.is_ok(),
                () = sleep(LOOK_EVERY) => self.adapters.check().await,
            }
        }
        self.trainer.changed().await.is_ok()
    }

    async fn follow(&mut self) {
        let state = self.trainer.borrow_and_update().clone();
        let serving = Arc::clone(&self.adapters.serving);
        let TrainerState::Ready { address, .. } = state else {
            return serving.set_policy(None);
        };
        self.adapters.load().await;
        // One that died meanwhile is seen next.
        match endpoint(address, &self.key) {
            Ok(endpoint) => serving.set_policy(Some(endpoint)),
            Err(error) => error!(%error, "the trainer's address cannot be used"),
        }
    }
}

fn endpoint(address: SocketAddr, key: &str) -> Result<Endpoint, impl std::error::Error + use<>> {
    let endpoint = Endpoint::new(&format!("http://{address}"), Some(key.into()), BASE);
    endpoint.map(Endpoint::with_system_append)
}
