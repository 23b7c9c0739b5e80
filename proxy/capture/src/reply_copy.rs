//! A copy of a reply's bytes. It is bounded, and never delays the agent.

use std::borrow::Cow;

use bytes::Bytes;

use crate::budget::{Budget, Held};

/// One reply may take an eighth of the whole budget, so that a very long reply leaves room for others.
const SHARE: u64 = 8;
/// The smallest amount that is reserved at once, in bytes.
const FIRST: usize = 1 << 10;
/// A longer copy continues in another piece, because moving it to a larger buffer would take the relaying thread
/// milliseconds.
const PIECE: usize = 256 << 10;

/// The copied bytes of a reply. If the budget has no room for more, the copy drops everything that it has.
#[derive(Debug)]
pub(crate) struct ReplyCopy {
    pieces: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    piece: usize,
    held: Held,
    most: usize,
    has_overflowed: bool,
}

// === impl ReplyCopy ===

impl ReplyCopy {
    /// Makes an empty copy. `in_one` keeps it in one piece, because the caller looks at its end while it grows.
    pub(crate) fn new(budget: &Budget, in_one: bool) -> Self {
        Self {
            pieces: Vec::new(),
            bytes: Vec::new(),
            piece: if in_one { usize::MAX } else { PIECE },
            held: budget.nothing(),
            most: usize::try_from(budget.limit / SHARE).unwrap_or(usize::MAX),
            has_overflowed: false,
        }
    }

    /// Copies more of the reply. Returns false if the copy was dropped just now.
    pub(crate) fn push(&mut self, bytes: &Bytes) -> bool {
        if self.has_overflowed {
            return true;
        }
        if self.bytes.len() >= self.piece {
            self.pieces.push(std::mem::take(&mut self.bytes));
        }
        let len = self.bytes.len() + bytes.len();
        if len > self.bytes.capacity() && !self.make_room(len) {
            self.has_overflowed = true;
            self.pieces = Vec::new();
            self.bytes = Vec::new();
            self.held.set(0);
            return false;
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// Returns the copied bytes, or `None` if memory ran out.
    pub(crate) fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        (!self.has_overflowed).then(|| match &self.pieces[..] {
            [] => Cow::Borrowed(&self.bytes[..]),
            pieces => {
                let all = pieces.iter().chain([&self.bytes]);
                Cow::Owned(all.map(Vec::as_slice).collect::<Vec<_>>().concat())
            }
        })
    }

    pub(crate) fn beginning(&self) -> Option<&[u8]> {
        let first = self.pieces.first().unwrap_or(&self.bytes);
        (!self.has_overflowed).then_some(first)
    }

    /// Makes room for `len` bytes in the last piece. It grows by at least half of its size, so that copying stays
    /// cheap.
    fn make_room(&mut self, len: usize) -> bool {
        let others: usize = self.pieces.iter().map(Vec::capacity).sum();
        let most = self.most.saturating_sub(others);
        let by_halves = (self.bytes.capacity() * 3 / 2).max(FIRST);
        let capacity = len.max(by_halves.min(most));
        let more = (capacity - self.bytes.capacity()) as u64;
        let fits = capacity <= most && self.held.grow(more);
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
    use crate::budget::Counter;

    fn budget(limit: u64) -> (Budget, Arc<Counter>) {
        let used = Arc::new(Counter::default());
        (Budget::new(limit, Arc::clone(&used)), used)
    }

    #[test]
    fn a_copy_keeps_what_came_and_gives_its_memory_back() {
        let (budget, used) = budget(1 << 20);
        let mut copy = ReplyCopy::new(&budget, true);
        for _ in 0..1_000 {
            assert!(copy.push(&Bytes::from_static(b"0123456789")));
        }
        assert_eq!(*copy.bytes().unwrap(), b"0123456789".repeat(1_000));
        let held = used.get();
        assert_eq!(held, copy.bytes.capacity() as u64);
        assert!((10_000..16_000).contains(&held), "{held}");
        drop(copy);
        assert_eq!(used.get(), 0);
    }

    #[test]
    fn a_long_copy_is_in_pieces_and_one_again_when_it_is_read() {
        let (budget, used) = budget(64 << 20);
        let mut copy = ReplyCopy::new(&budget, false);
        let frame = Bytes::from(vec![7; 100_000]);
        for _ in 0..70 {
            assert!(copy.push(&frame));
        }
        assert_eq!(copy.bytes().unwrap().len(), 7_000_000);
        let most = copy.pieces.iter().map(Vec::capacity).max().unwrap();
        assert!(most <= PIECE + 2 * frame.len(), "{most}");
        assert_eq!(&copy.beginning().unwrap()[..9], [7; 9]);
        let held = used.get();
        assert!((7_000_000..9_000_000).contains(&held), "{held}");
        for _ in 0..20 {
            copy.push(&frame);
        }
        assert_eq!((copy.bytes(), used.get()), (None, 0));
    }

    #[test]
    fn a_reply_may_take_all_of_its_share() {
        let (budget, _) = budget(16 << 10);
        let mut copy = ReplyCopy::new(&budget, true);
        for _ in 0..19 {
            assert!(copy.push(&Bytes::from_static(&[b'x'; 100])));
        }
        assert_eq!(copy.bytes().map(|bytes| bytes.len()), Some(1_900));
    }

    #[test]
    fn beyond_the_budget_it_lets_go_and_says_so_once() {
        let (budget, used) = budget(16 << 10);
        let mut copies: Vec<_> = (0..20).map(|_| ReplyCopy::new(&budget, true)).collect();
        let piece = Bytes::from_static(&[b'x'; 1_024]);
        let kept = copies
            .iter_mut()
            .filter_map(|copy| copy.push(&piece).then_some(()));
        assert_eq!(kept.count(), 16);
        let n_whole = copies.iter().filter(|copy| copy.bytes().is_some()).count();
        assert_eq!(n_whole, 16);
        let mut alone = ReplyCopy::new(&self::budget(16 << 10).0, true);
        let kept: Vec<_> = (0..4).map(|_| alone.push(&piece)).collect();
        assert_eq!(kept, [true, true, false, true]);
        assert_eq!(alone.bytes(), None, "a runaway took more than its share");
        copies[0].push(&Bytes::from_static(&[b'x'; 4_096]));
        assert_eq!(used.get(), 15 * 1_024);
    }
}
