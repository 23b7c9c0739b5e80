//! The interface to the log.

use std::{future::Future, pin::Pin, time::Duration};

use metaclaw_turns::{Done, NewTurn, TurnLog};

pub trait TurnSink: Send + Sync + 'static {
    /// Hands a turn in. Resolves when the log has accepted it. `done` is notified when the turn is durable, or why it
    /// never will be.
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_>;

    /// Returns how long the oldest turn that was handed in and is not durable yet has been waiting.
    fn oldest_unflushed(&self) -> Option<Duration>;
}

/// The future that [`TurnSink::append`] returns.
pub type Appending<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl TurnSink for TurnLog {
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_> {
        Box::pin(self.hand_in(turn, done))
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        self.health().oldest_unflushed
    }
}
