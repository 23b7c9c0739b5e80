//! Turns as they come into the log, for one task.

use std::collections::{HashSet, VecDeque};

use metaclaw_chat::TurnId;
use metaclaw_turns::TurnLog;
use tokio::sync::broadcast::{Receiver, error::RecvError, error::TryRecvError};

#[derive(Debug)]
pub(crate) struct Feed {
    appended: Receiver<TurnId>,
    queue: TurnQueue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedNext {
    Turn(TurnId),
    /// Look through the log, and [`Feed::refill`].
    Rescan,
    /// End: the log is closed.
    End,
}

// === impl Feed ===

impl Feed {
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

    pub(crate) fn refill(&mut self, ids: &[TurnId]) {
        self.queue.refill(ids);
    }

    pub(crate) fn again(&mut self, id: TurnId) {
        self.queue.push(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

/// The most turns that wait here. Beyond, the queue is emptied and the log is read again instead.
const BOUND: usize = 4_096;

/// Turns to be looked at, each once, the oldest first.
///
/// Over the bound nothing is lost: the queue forgets, and asks for a look at the whole log.
#[derive(Debug)]
struct TurnQueue {
    waiting: VecDeque<TurnId>,
    known: HashSet<TurnId>,
    rescan: bool,
    bound: usize,
}

// === impl TurnQueue ===

impl TurnQueue {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            known: HashSet::new(),
            rescan: true,
            bound: BOUND,
        }
    }

    fn push(&mut self, id: TurnId) {
        if self.waiting.len() >= self.bound {
            self.overflowed();
        } else if self.known.insert(id) {
            self.waiting.push_back(id);
        }
    }

    fn overflowed(&mut self) {
        self.waiting.clear();
        self.known.clear();
        self.rescan = true;
    }

    /// What the look at the log found, in its order; over the bound the newest.
    fn refill(&mut self, ids: &[TurnId]) {
        let newest = ids.len().saturating_sub(self.bound - self.waiting.len());
        for id in &ids[newest..] {
            self.push(*id);
        }
    }

    fn pop(&mut self) -> Option<TurnId> {
        let id = self.waiting.pop_front()?;
        self.known.remove(&id);
        Some(id)
    }

    fn take_rescan(&mut self) -> bool {
        std::mem::take(&mut self.rescan)
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seq: u32) -> TurnId {
        TurnId { session: 1, seq }
    }

    #[test]
    fn turns_come_out_once_in_order() {
        let mut queue = TurnQueue::new();
        assert!(queue.take_rescan() && !queue.take_rescan());
        for seq in [1, 2, 1] {
            queue.push(id(seq));
        }
        assert_eq!(
            (queue.pop(), queue.pop(), queue.pop()),
            (Some(id(1)), Some(id(2)), None)
        );
        queue.push(id(1));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn beyond_the_bound_the_log_is_read_instead() {
        let mut queue = TurnQueue {
            bound: 2,
            ..TurnQueue::new()
        };
        queue.take_rescan();
        for seq in 0..3 {
            queue.push(id(seq));
        }
        assert_eq!(queue.len(), 0);
        assert!(queue.take_rescan());
        queue.refill(&[id(0), id(1), id(2)]);
        assert_eq!((queue.pop(), queue.pop()), (Some(id(1)), Some(id(2))));
        assert!(!queue.take_rescan());
    }
}
