//! From a trainer of ours that answers to a model that is served: its adapters are loaded in between.

use std::{net::SocketAddr, sync::Arc};

use metaclaw_gateway::Endpoint;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{adapters::Adapters, trainer::BASE};
use crate::supervise::TrainerState;

/// Keeps the gateway's pointer to the local trainer.
pub(super) struct Served {
    pub adapters: Adapters,
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
