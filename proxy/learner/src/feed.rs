//! Passes new turns of the log to one task.

use metaclaw_chat::TurnId;
use metaclaw_turns::TurnLog;
use tokio::sync::broadcast::{Receiver, error::RecvError, error::TryRecvError};

use crate::queue::TurnQueue;

/// The turns that one task has to look at.
#[derive(Debug)]
pub(crate) struct Feed {
    appended: Receiver<TurnId>,
    queue: TurnQueue,
}

/// The task's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedNext {
    /// Look at this turn.
    Turn(TurnId),
    /// Read the log from the start, and call [`Feed::refill`].
    Rescan,
    /// End: the log is closed.
    End,
}

// === impl Feed ===

impl Feed {
    /// Creates a feed whose first action is to read the log.
    pub(crate) fn new(log: &TurnLog) -> Self {
        Self {
            appended: log.subscribe(),
            queue: TurnQueue::new(),
        }
    }

    /// Returns the next action; waits until there is one.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
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

    /// Takes the waiting entries of the log's channel, so that the channel does not overflow.
    fn drain(&mut self) {
        loop {
            match self.appended.try_recv() {
                Ok(id) => self.queue.push(id),
                Err(TryRecvError::Lagged(_)) => self.queue.overflowed(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// Takes the result of [`Next::Rescan`].
    pub(crate) fn refill(&mut self, ids: &[TurnId]) {
        self.queue.refill(ids);
    }

    /// Puts a turn back, after the others.
    pub(crate) fn again(&mut self, id: TurnId) {
        self.queue.push(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}
