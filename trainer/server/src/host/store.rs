//! The checkpoint folder, which one caller at a time may use.
//!
//! Callers that read or write checkpoints, or save an adapter, wait for their turn, in the order of their requests. A
//! write keeps its turn until it has ended, even if its caller has gone; so a new client, whose first call waits for
//! its own turn, finds what the previous one wrote, and nothing of that arrives later.

use std::{path::PathBuf, sync::Arc};

use metaclaw_engine::{adapter::AdapterError, checkpoint::CheckpointIndex, folder};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::failure::RunError;
use crate::{blocking::blocking, error::Result};

#[derive(Debug)]
pub(super) struct CheckpointFolder {
    pub(super) folder: PathBuf,
    pub(super) keep: usize,
    index: Arc<Mutex<CheckpointIndex>>,
    #[cfg(test)]
    pub(super) gate: Gate,
}

/// The turn of one caller, which passes to the next on drop.
#[derive(Debug)]
pub(super) struct StoreTurn {
    index: OwnedMutexGuard<CheckpointIndex>,
    #[cfg(test)]
    gate: Gate,
}

// === impl CheckpointFolder ===

impl CheckpointFolder {
    /// Removes what a killed process left half written: the caller has locked the folder.
    pub(super) fn new(folder: PathBuf, keep: usize) -> Self {
        folder::sweep(&folder::adapters(&folder));
        folder::sweep(&folder::checkpoints(&folder));
        Self {
            folder,
            keep: keep.max(1),
            index: Arc::default(),
            #[cfg(test)]
            gate: Gate::default(),
        }
    }

    /// Waits until all earlier callers have ended.
    ///
    /// # Cancel safety
    /// Who leaves before its turn takes none.
    pub(super) async fn turn(&self) -> StoreTurn {
        StoreTurn {
            index: Arc::clone(&self.index).lock_owned().await,
            #[cfg(test)]
            gate: self.gate.clone(),
        }
    }
}

// === impl StoreTurn ===

impl StoreTurn {
    /// Runs work on the disk on a blocking thread, so replies continue meanwhile.
    ///
    /// # Errors
    /// Returns the errors of the work.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work and the turn still continue to their end.
    pub(super) async fn work<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut CheckpointIndex) -> Result<T, AdapterError> + Send + 'static,
    ) -> Result<T> {
        let work = move || {
            #[cfg(test)]
            self.gate.pass();
            work(&mut self.index).map_err(RunError::from)
        };
        blocking("the disk work", work).await
    }
}

/// Lets a test slow one piece of work down: the work reports that it has begun and then waits for the test.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<std::sync::Mutex<Option<Closed>>>);

#[cfg(test)]
pub(crate) type Closed = (
    tokio::sync::oneshot::Sender<()>,
    tokio::sync::oneshot::Receiver<()>,
);

#[cfg(test)]
impl Gate {
    pub(super) fn close(&self, closed: Closed) {
        *self.0.lock().unwrap() = Some(closed);
    }

    fn pass(&self) {
        let closed = self.0.lock().unwrap().take();
        if let Some((begun, go_on)) = closed {
            begun.send(()).unwrap();
            // A test that has ended delays nothing.
            let _ = go_on.blocking_recv();
        }
    }
}
