//! The training server, as code outside of training uses it.

use std::sync::Arc;

use metaclaw_trainer_api::{RunId, TrainingBackend};
use tokio::sync::{Mutex, Semaphore};

/// The largest number of replies that are drawn at once outside of training, because each takes a part of every pass
/// while users wait for theirs. A server on two cores draws 1.5 times as much in all as with half as many, and no more
/// with twice as many.
pub(super) const MOST_STREAMS: u32 = 16;

/// A handle to the training server for callers that look at replies without training on them.
#[derive(Debug)]
pub(crate) struct PolicyModel {
    pub(super) backend: Arc<dyn TrainingBackend>,
    /// One permit for each reply that is drawn.
    pub(super) streams: Semaphore,
    /// A forward pass belongs to a run, even with its adapter off.
    pub(super) scoring_run: Mutex<Option<RunId>>,
}

// === impl PolicyModel ===

impl PolicyModel {
    /// Returns whether the server can certainly score a given reply.
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

    /// Releases what it holds at the server. A later request opens it again.
    pub(crate) async fn close(&self) {
        let Some(run) = self.scoring_run.lock().await.take() else {
            return;
        };
        if let Err(error) = self.backend.close_run(run).await {
            // The server may drop it to free memory.
            tracing::debug!(%error, "not closed");
        }
    }
}
