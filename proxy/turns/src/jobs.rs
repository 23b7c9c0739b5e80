//! The jobs of the log's thread.

use std::{sync::Arc, time::Instant};

use metaclaw_chat::TurnId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    error::LogError,
    health::LogState,
    new_turn::NewTurn,
    store::{Store, StoreError},
    txn::Txn,
    values::TxnError,
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
pub(crate) type Write = Box<dyn FnOnce(&mut Txn<'_>) -> Result<Ack, StoreError> + Send>;
/// Notifies the caller. It runs after the flush.
pub(crate) type Ack = Box<dyn FnOnce() + Send>;
/// A query, which answers its caller itself.
pub(crate) type ReadJob = Box<dyn FnOnce(&Store) -> Result<(), StoreError> + Send>;

/// A turn on its way, kept until it is acknowledged.
pub(crate) struct Append {
    /// A unique key of this turn.
    pub(crate) key: u64,
    pub(crate) new: Box<NewTurn>,
    pub(crate) n_bytes: usize,
    pub(crate) pending: PendingTurn,
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Receives the result for a turn: its id once it is safe from a kill, or why it is not in the log. It runs on the
/// log's own thread and must be quick.
pub type Done = Box<dyn FnOnce(Result<TurnId, LogError>) + Send>;

/// A turn that waits to be flushed, with the callback to notify. If it is dropped, the callback gets
/// [`LogError::Closed`].
pub(crate) struct PendingTurn {
    state: Arc<LogState>,
    /// Since when it waits, and its key, which distinguishes it from turns of the same moment.
    since: (Instant, u64),
    done: Option<Done>,
}

// === impl PendingTurn ===

impl PendingTurn {
    pub(crate) fn new(state: &Arc<LogState>, key: u64, done: Done) -> Self {
        let since = (Instant::now(), key);
        state.waiting().insert(since);
        Self {
            state: Arc::clone(state),
            since,
            done: Some(done),
        }
    }

    pub(crate) fn tell(mut self, what: Result<TurnId, LogError>) {
        self.end(what);
    }

    /// The turn stops waiting before the callback runs.
    fn end(&mut self, what: Result<TurnId, LogError>) {
        if let Some(done) = self.done.take() {
            self.state.waiting().remove(&self.since);
            done(what);
        }
    }
}

impl Drop for PendingTurn {
    fn drop(&mut self) {
        self.end(Err(LogError::Closed));
    }
}

/// Splits the result of an operation: an error of the store concerns everybody.
pub(crate) fn answer<T>(result: Result<T, TxnError>) -> Result<Result<T, LogError>, StoreError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(TxnError::Refused(error)) => Ok(Err(error)),
        Err(TxnError::Store(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::LogHealth;

    #[test]
    fn the_age_is_that_of_the_turn_that_waits_longest() {
        let state = Arc::new(LogState::new());
        assert_eq!(state.health(), LogHealth::default());
        let wait = |key| PendingTurn::new(&state, key, Box::new(|_| ()));
        let (first, second) = (wait(1), wait(2));
        let age = || state.health().oldest_unflushed.unwrap();
        let since = |pending: &PendingTurn| pending.since.0.elapsed();
        assert!(age() >= since(&second));
        drop(first);
        assert!(age() <= since(&second));
        drop(second);
        assert_eq!(state.health(), LogHealth::default());
    }
}
