//! The copy of a reply's bytes: bounded, and never in the agent's way.

use bytes::Bytes;

use crate::budget::{Budget, Held};

/// What one reply may take of the whole, so that a runaway leaves room for others: an eighth.
const SHARE: u64 = 8;
/// The least that is set aside at once, in bytes.
const FIRST: usize = 1 << 10;

/// A reply's bytes, as far as they came. One that finds no room lets go of all that it has.
#[derive(Debug)]
pub(crate) struct ReplyCopy {
    bytes: Vec<u8>,
    held: Held,
    /// The most bytes that it may take.
    most: usize,
    has_overflowed: bool,
}

// === impl ReplyCopy ===

impl ReplyCopy {
    pub(crate) fn new(budget: &Budget) -> Self {
        Self {
            bytes: Vec::new(),
            held: budget.nothing(),
            most: usize::try_from(budget.limit() / SHARE).unwrap_or(usize::MAX),
            has_overflowed: false,
        }
    }

    /// Copies more of the reply; false where it had to let go of it just now.
    pub(crate) fn push(&mut self, bytes: &Bytes) -> bool {
        if self.has_overflowed {
            return true;
        }
        let len = self.bytes.len() + bytes.len();
        if len > self.bytes.capacity() && !self.make_room(len) {
            self.has_overflowed = true;
            self.bytes = Vec::new();
            self.held.set(0);
            return false;
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// What came; `None` where memory ran out.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        (!self.has_overflowed).then_some(&self.bytes)
    }

    /// Room for `len` bytes in all: grown by halves of its own size at least, so that copying stays cheap.
    fn make_room(&mut self, len: usize) -> bool {
        let by_halves = (self.bytes.capacity() * 3 / 2).max(FIRST);
        let capacity = len.max(by_halves.min(self.most));
        let more = (capacity - self.bytes.capacity()) as u64;
        let fits = capacity <= self.most && self.held.grow(more);
        if fits {
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::Counter;

    fn budget(limit: u64) -> (Budget, Arc<Counter>) {
        let used = Arc::new(Counter::default());
        (Budget::new(limit, Arc::clone(&used)), used)
    }

    #[test]
    fn a_copy_keeps_what_came_and_gives_its_memory_back() {
        let (budget, used) = budget(1 << 20);
        let mut copy = ReplyCopy::new(&budget);
        for _ in 0..1_000 {
            assert!(copy.push(&Bytes::from_static(b"0123456789")));
        }
        assert_eq!(copy.bytes().unwrap(), b"0123456789".repeat(1_000));
        let held = used.get();
        assert_eq!(held, copy.bytes.capacity() as u64);
        assert!((10_000..16_000).contains(&held), "{held}");
        drop(copy);
        assert_eq!(used.get(), 0);
    }

    #[test]
    fn a_reply_may_take_all_of_its_share() {
        let (budget, _) = budget(16 << 10);
        let mut copy = ReplyCopy::new(&budget);
        for _ in 0..19 {
            assert!(copy.push(&Bytes::from_static(&[b'x'; 100])));
        }
        assert_eq!(copy.bytes().map(<[u8]>::len), Some(1_900));
    }

    #[test]
    fn beyond_the_budget_it_lets_go_and_says_so_once() {
        let (budget, used) = budget(16 << 10);
        let mut copies: Vec<_> = (0..20).map(|_| ReplyCopy::new(&budget)).collect();
        let piece = Bytes::from_static(&[b'x'; 1_024]);
        let kept = copies
            .iter_mut()
            .filter_map(|copy| copy.push(&piece).then_some(()));
        assert_eq!(kept.count(), 16);
        let n_whole = copies.iter().filter(|copy| copy.bytes().is_some()).count();
        assert_eq!(n_whole, 16);
        let mut alone = ReplyCopy::new(&self::budget(16 << 10).0);
        let kept: Vec<_> = (0..4).map(|_| alone.push(&piece)).collect();
        assert_eq!(kept, [true, true, false, true]);
        assert_eq!(alone.bytes(), None, "a runaway took more than its share");
        copies[0].push(&Bytes::from_static(&[b'x'; 4_096]));
        assert_eq!(used.get(), 15 * 1_024);
    }
}
