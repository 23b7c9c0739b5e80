//! What the log's thread is asked to do.

use metaclaw_chat::TurnId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    error::LogError,
    health::Ticket,
    new_turn::NewTurn,
    store::{Store, StoreError},
    txn::Txn,
    values::TxnError,
};

pub(crate) enum Job {
    Append(Append),
    Write(Write),
    Read(Read),
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
    pub(crate) receipt: Receipt,
    pub(crate) ticket: Ticket,
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Hears what became of a turn: its id once it is safe from a kill, or why it is not in the log. On the
/// log's own thread: it must be quick.
pub type Done = Box<dyn FnOnce(Result<TurnId, LogError>) + Send>;

/// Tells what became of a turn; dropped, that the log is closed.
pub(crate) struct Receipt(Option<Done>);

// === impl Receipt ===

impl Receipt {
    pub(crate) fn new(done: Done) -> Self {
        Self(Some(done))
    }

    pub(crate) fn tell(mut self, what: Result<TurnId, LogError>) {
        if let Some(done) = self.0.take() {
            done(what);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(LogError::Closed));
        }
    }
}

/// What an operation answers; an error of the store is everybody's.
pub(crate) fn answer<T, E>(result: Result<T, TxnError<E>>) -> Result<Result<T, E>, StoreError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(TxnError::Refused(error)) => Ok(Err(error)),
        Err(TxnError::Store(error)) => Err(error),
    }
}
