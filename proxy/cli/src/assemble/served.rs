//! From a trainer that answers to a model that is served: its adapters are loaded in between.
//!
//! The log names the adapter of each agent. A trainer may have lost it, or have been given another
//! base model since; asked for it, it would refuse every chat of that agent, and an agent without
//! chats never trains a new one. So each is tried before anybody is sent there.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use metaclaw_gateway::{Endpoint, Serving};
use metaclaw_trainer_api::{BackendError, TrainingBackend, wire::SampleRequest};
use metaclaw_turns::TurnLog;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::trainer::BASE;
use crate::supervise::TrainerState;

/// How long loading may keep chats waiting; what is not loaded then is loaded when it is asked for.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// What a trainer answers that does not have an adapter, cannot use it, or draws what is no number from it.
const LACKING: [&str; 4] = [
    "model_not_found",
    "adapter_refused",
    "adapter_damaged",
    "weights_not_finite",
];

/// Keeps the gateway's pointer to the local trainer.
pub(super) struct Served {
    pub serving: Arc<Serving>,
    pub log: TurnLog,
    pub backend: Arc<dyn TrainingBackend>,
    /// What the trainer wants to be shown.
    pub key: String,
    pub trainer: watch::Receiver<TrainerState>,
}

// === impl Served ===

impl Served {
    /// Follows the trainer until `ending`.
    pub(super) async fn run(mut self, ending: CancellationToken) {
        let follow = async {
            loop {
                self.follow().await;
                if self.trainer.changed().await.is_err() {
                    return;
                }
            }
        };
        ending.run_until_cancelled(follow).await;
    }

    async fn follow(&mut self) {
        let state = self.trainer.borrow_and_update().clone();
        let TrainerState::Ready { address, .. } = state else {
            return self.serving.set_policy(None);
        };
        if timeout(LOAD_TIMEOUT, self.load()).await.is_err() {
            warn!("adapters take long to load: chats do not wait for the rest");
        }
        // One that died meanwhile is seen next.
        match endpoint(address, &self.key) {
            Ok(endpoint) => self.serving.set_policy(Some(endpoint)),
            Err(error) => error!(%error, "the trainer's address cannot be used"),
        }
    }

    /// Has each adapter loaded that the log names; an agent whose adapter is refused gets the base.
    async fn load(&self) {
        let served = match self.log.serving().await {
            Ok(served) => served,
            Err(error) => return warn!(%error, "the log does not say which adapters are served"),
        };
        for (agent, adapter) in served {
            let tried = self
                .backend
                .sample(SampleRequest::one_token(adapter.clone()))
                .await;
            match tried {
                Err(error) if is_lacking(&error) => {
                    warn!(%agent, adapter, %error, "the base model serves this agent until it has learned again");
                    self.serving.withdraw(&adapter);
                }
                // Requests that need an adapter that is missing get an error of their own.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

fn is_lacking(error: &BackendError) -> bool {
    matches!(error, BackendError::Status { code: Some(code), .. } if LACKING.contains(&&**code))
}

fn endpoint(address: SocketAddr, key: &str) -> Result<Endpoint, impl std::error::Error + use<>> {
    let endpoint = Endpoint::new(&format!("http://{address}"), Some(key.into()), BASE);
    endpoint.map(Endpoint::with_system_append)
}
