//! What the log's thread is asked to do.

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

pub(crate) enum Job {
    Append(Append),
    Write(Write),
    Read(Read),
    /// The database is to be written anew.
    Compact(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// A change, made in a transaction. Dropped without its acknowledgement, it has failed.
pub(crate) type Write = Box<dyn FnOnce(&mut Txn<'_>) -> Result<Ack, StoreError> + Send>;
/// Tells whoever asked; run after the flush.
pub(crate) type Ack = Box<dyn FnOnce() + Send>;
/// A question, answered by itself.
pub(crate) type Read = Box<dyn FnOnce(&Store) -> Result<(), StoreError> + Send>;

/// A turn on its way, kept until it is acknowledged.
pub(crate) struct Append {
    /// Drawn for this turn alone.
    pub(crate) key: u64,
    pub(crate) new: Box<NewTurn>,
    pub(crate) n_bytes: usize,
    pub(crate) pending: PendingTurn,
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Hears what became of a turn: its id once it is safe from a kill, or why it is not in the log. On the
/// log's own thread: it must be quick.
pub type Done = Box<dyn FnOnce(Result<TurnId, LogError>) + Send>;

/// That a turn waits to be flushed, and who is told what became of it; dropped, that the log is closed.
pub(crate) struct PendingTurn {
    state: Arc<LogState>,
    /// Since when, and its key: it tells the turn from those that came in the same moment.
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

    /// Whoever is told finds that it waits no more.
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

/// What an operation answers; an error of the store is everybody's.
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
