//! The policy server, as those hold it who ask it beside the chat.

use std::sync::Arc;

use metaclaw_trainer_api::{RunId, TrainingBackend};
use tokio::sync::{Mutex, Semaphore};

/// Replies drawn at once, of all who ask beside the chat: each of them takes its part of every pass, and users wait for theirs. A
/// server on two cores draws 1.5 times as much in all as with half as many, and no more with twice as many.
pub(super) const MOST_STREAMS: u32 = 16;

/// The policy server, as those ask it who look at replies without training on them.
#[derive(Debug)]
pub(crate) struct PolicyModel {
    pub(super) backend: Arc<dyn TrainingBackend>,
    /// One permit for each reply that is drawn.
    pub(super) streams: Semaphore,
    /// A forward pass is of a run, even with its adapter off.
    pub(super) scoring_run: Mutex<Option<RunId>>,
}

// === impl PolicyModel ===

impl PolicyModel {
    /// Whether the server is sure to say how likely a given reply is.
    pub(crate) fn surely_scores(&self) -> bool {
        self.backend.surely_scores()
    }

    pub(crate) fn new(backend: Arc<dyn TrainingBackend>) -> Self {
        Self {
            backend,
            streams: Semaphore::new(MOST_STREAMS as usize),
            scoring_run: Mutex::new(None),
        }
    }

    /// Gives back what it holds at the server. What is asked later is asked anew.
    pub(crate) async fn close(&self) {
        let Some(run) = self.scoring_run.lock().await.take() else {
            return;
        };
        if let Err(error) = self.backend.close_run(run).await {
            // It goes when the server wants its memory.
            tracing::debug!(%error, "not closed");
        }
    }
}
