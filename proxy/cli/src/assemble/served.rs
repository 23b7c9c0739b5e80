//! From a trainer of ours that answers to a model that is served: its adapters are loaded in between.

use std::{net::SocketAddr, sync::Arc};

use metaclaw_control::status::TrainerState;
use metaclaw_gateway::Endpoint;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{adapters::AdapterLoader, remote::LOOK_EVERY, trainer::BASE};

/// Keeps the gateway's pointer to the local trainer.
pub(super) struct TrainerFollower {
    pub adapters: AdapterLoader,
    /// What the trainer wants to be shown.
    pub key: String,
    pub trainer: watch::Receiver<TrainerState>,
    /// Whether another server answers chats for it.
    pub has_inference: bool,
}

// === impl TrainerFollower ===

impl TrainerFollower {
    /// Follows the trainer until `ending`.
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
                () = sleep(LOOK_EVERY) => self.adapters.look().await,
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
