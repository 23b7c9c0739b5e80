//! Turns as they come into the log, for one task.

use metaclaw_chat::TurnId;
use metaclaw_turns::TurnLog;
use tokio::sync::broadcast::{Receiver, error::RecvError, error::TryRecvError};

use crate::queue::TurnQueue;

/// The turns that one task is to look at.
#[derive(Debug)]
pub(crate) struct Feed {
    appended: Receiver<TurnId>,
    queue: TurnQueue,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedNext {
    /// Look at this turn.
    Turn(TurnId),
    /// Look through the log, and [`Feed::refill`].
    Rescan,
    /// End: the log is closed.
    End,
}

// === impl Feed ===

impl Feed {
    /// A feed that asks for a look at the log first.
    pub(crate) fn new(log: &TurnLog) -> Self {
        Self {
            appended: log.subscribe(),
            queue: TurnQueue::new(),
        }
    }

    /// What to do next; waits until there is something.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> FeedNext {
        loop {
            self.drain();
            if self.queue.take_rescan() {
                return FeedNext::Rescan;
            }
            if let Some(id) = self.queue.pop() {
                return FeedNext::Turn(id);
            }
            match self.appended.recv().await {
                Ok(id) => self.queue.push(id),
                Err(RecvError::Lagged(_)) => self.queue.overflowed(),
                Err(RecvError::Closed) => return FeedNext::End,
            }
        }
    }

    /// Takes over what waits in the log's channel, so that it does not run over there.
    fn drain(&mut self) {
        loop {
            match self.appended.try_recv() {
                Ok(id) => self.queue.push(id),
                Err(TryRecvError::Lagged(_)) => self.queue.overflowed(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// The answer to [`FeedNext::Rescan`].
    pub(crate) fn refill(&mut self, ids: &[TurnId]) {
        self.queue.refill(ids);
    }

    /// Puts a turn back, behind the others.
    pub(crate) fn again(&mut self, id: TurnId) {
        self.queue.push(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}
