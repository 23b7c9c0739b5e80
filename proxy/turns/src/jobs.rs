//! The jobs of the log's thread.

use std::{sync::Arc, time::Instant};

use metaclaw_chat::TurnId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    error::LogError,
    health::LogState,
    new_turn::NewTurn,
    store::{Store, StoreResult},
    txn::Txn,
};

pub(crate) enum LogJob {
    Append(Append),
    Write(Write),
    Read(ReadJob),
    /// Write the database anew.
    Compact(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// A change that is made in a transaction. If it is dropped without its acknowledgement, it has failed.
pub(crate) type Write = Box<dyn FnOnce(&mut Txn<'_>) -> StoreResult<Ack> + Send>;
/// Notifies the caller. It runs after the flush.
pub(crate) type Ack = Box<dyn FnOnce() + Send>;
pub(crate) type ReadJob = Box<dyn FnOnce(&Store) -> StoreResult<()> + Send>;

/// A turn that waits to be flushed. Its caller gets one answer. If it is dropped before, that is [`LogError::Closed`].
pub(crate) struct Append {
    /// A unique key, by which the turn is found if it is written again after a failure.
    pub(crate) key: u64,
    pub(crate) new: Box<NewTurn>,
    pub(crate) n_bytes: usize,
    pub(crate) room: Option<OwnedSemaphorePermit>,
    since: Instant,
    done: Option<Done>,
    state: Arc<LogState>,
}

/// Receives the result for a turn: its id once it is safe from a kill, or why it is not in the log. It runs on the
/// log's own thread and must be quick.
pub type Done = Box<dyn FnOnce(Result<TurnId, LogError>) + Send>;

// === impl Append ===

impl Append {
    pub(crate) fn new(state: &Arc<LogState>, key: u64, new: NewTurn, done: Done) -> Self {
        let since = Instant::now();
        state.waiting().insert((since, key));
        Self {
            key,
            n_bytes: new.n_bytes(),
            new: Box::new(new),
            room: None,
            since,
            done: Some(done),
            state: Arc::clone(state),
        }
    }

    pub(crate) fn answer(mut self, result: Result<TurnId, LogError>) {
        self.end(result);
    }

    /// The turn stops waiting before the callback runs.
    fn end(&mut self, result: Result<TurnId, LogError>) {
        if let Some(done) = self.done.take() {
            self.state.waiting().remove(&(self.since, self.key));
            done(result);
        }
    }
}

impl Drop for Append {
    fn drop(&mut self) {
        self.end(Err(LogError::Closed));
    }
}
