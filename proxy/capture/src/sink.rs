//! The seam to the log.

use std::{future::Future, pin::Pin, time::Duration};

use metaclaw_turns::{Done, NewTurn, TurnLog};

pub trait TurnSink: Send + Sync + 'static {
    /// Hands a turn in; resolves when the log has taken it. `done` is told when it is durable, or why it
    /// never will be.
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_>;

    /// How long the oldest turn that was put and is not durable has been waiting.
    fn oldest_unflushed(&self) -> Option<Duration>;
}

/// What [`TurnSink::append`] gives.
pub type Appending<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl TurnSink for TurnLog {
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_> {
        Box::pin(self.hand_in(turn, done))
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        self.health().oldest_unflushed
    }
}
