//! A bounded queue of turns to look at; the log holds everything, and the queue only says where to look.

use std::collections::{HashSet, VecDeque};

use metaclaw_chat::TurnId;

/// The largest number of waiting turns. Beyond it, the queue is emptied and the log is read again.
const BOUND: usize = 4_096;

/// The turns to look at, each once, oldest first.
///
/// Beyond the limit nothing is lost: the queue is emptied, and the whole log has to be read.
#[derive(Debug)]
pub(crate) struct TurnQueue {
    waiting: VecDeque<TurnId>,
    known: HashSet<TurnId>,
    rescan: bool,
    bound: usize,
}

// === impl TurnQueue ===

impl TurnQueue {
    /// Creates an empty queue that asks for a first scan of the log.
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            known: HashSet::new(),
            rescan: true,
            bound: BOUND,
        }
    }

    /// Adds a turn at the end, unless it waits already.
    pub(crate) fn push(&mut self, id: TurnId) {
        if self.waiting.len() >= self.bound {
            self.overflowed();
        } else if self.known.insert(id) {
            self.waiting.push_back(id);
        }
    }

    /// Empties the queue and asks for a scan of the log.
    pub(crate) fn overflowed(&mut self) {
        self.waiting.clear();
        self.known.clear();
        self.rescan = true;
    }

    /// Takes the result of the scan, in its order; beyond the limit, the newest.
    pub(crate) fn refill(&mut self, ids: &[TurnId]) {
        let newest = ids.len().saturating_sub(self.bound - self.waiting.len());
        for id in &ids[newest..] {
            self.push(*id);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<TurnId> {
        let id = self.waiting.pop_front()?;
        self.known.remove(&id);
        Some(id)
    }

    /// Returns whether the log must be read, and clears that mark.
    pub(crate) fn take_rescan(&mut self) -> bool {
        std::mem::take(&mut self.rescan)
    }

    pub(crate) fn len(&self) -> usize {
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
