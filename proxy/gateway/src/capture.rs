//! The copy of a reply that learning gets: bounded, and never in the agent's way.
//!
//! All captures together hold at most `proxy.capture_memory`. One that finds no room, or takes more
//! than its share, lets go of what it has and says so; the relay goes on as if nothing were.

use std::sync::Arc;

use bytes::Bytes;

use crate::metrics::{Counter, Metrics};

/// What one reply may take of the whole, so that a runaway leaves room for others: an eighth.
const SHARE: u64 = 8;

/// Memory that many share: that of all captures, or of all request bodies.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    limit: u64,
    metrics: Arc<Metrics>,
    used: fn(&Metrics) -> &Counter,
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    n_bytes: u64,
    budget: Budget,
}

/// A reply's bytes, as far as they came.
#[derive(Debug)]
pub(crate) struct Capture {
    bytes: Vec<u8>,
    held: Held,
    overflowed: bool,
}

// === impl Budget ===

impl Budget {
    /// `used` says what is taken of it.
    pub(crate) fn new(limit: u64, metrics: Arc<Metrics>, used: fn(&Metrics) -> &Counter) -> Self {
        Self {
            limit,
            metrics,
            used,
        }
    }

    /// The memory of captures.
    pub(crate) fn of_captures(limit: u64, metrics: Arc<Metrics>) -> Self {
        Self::new(limit, metrics, |metrics| &metrics.capture_bytes)
    }

    /// A part that is still to grow.
    pub(crate) fn nothing(&self) -> Held {
        Held {
            n_bytes: 0,
            budget: self.clone(),
        }
    }

    /// Takes `n_bytes` of the budget, if there are as many. Those who ask at once may both be
    /// refused where one could have been served; never is more given than there is.
    pub(crate) fn hold(&self, n_bytes: usize) -> Option<Held> {
        let mut held = self.nothing();
        held.grow(n_bytes as u64).then_some(held)
    }

    fn used(&self) -> &Counter {
        (self.used)(&self.metrics)
    }
}

// === impl Held ===

impl Held {
    /// Takes more, if there is as much; whether there was.
    pub(crate) fn grow(&mut self, more: u64) -> bool {
        let used = self.budget.used();
        used.add(more);
        let fits = used.get() <= self.budget.limit;
        if fits {
            self.n_bytes += more;
        } else {
            used.sub(more);
        }
        fits
    }

    /// Holds `n_bytes` from now on, be there as many or not: the memory is taken already.
    pub(crate) fn set(&mut self, n_bytes: u64) {
        let used = self.budget.used();
        match n_bytes.checked_sub(self.n_bytes) {
            Some(more) => used.add(more),
            None => used.sub(self.n_bytes - n_bytes),
        }
        self.n_bytes = n_bytes;
    }

    fn clear(&mut self) {
        let n_bytes = std::mem::take(&mut self.n_bytes);
        self.budget.used().sub(n_bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.clear();
    }
}

// === impl Capture ===

impl Capture {
    /// An empty capture.
    pub(crate) fn new(budget: &Budget) -> Self {
        Self {
            bytes: Vec::new(),
            held: budget.nothing(),
            overflowed: false,
        }
    }

    /// Copies more of the reply.
    pub(crate) fn push(&mut self, bytes: &Bytes) {
        if self.overflowed {
            return;
        }
        let len = self.bytes.len() + bytes.len();
        if len > self.bytes.capacity() {
            let share = self.held.budget.limit / SHARE;
            let most = usize::try_from(share).unwrap_or(usize::MAX);
            // Grown by halves of its own length at least, so that copying stays cheap.
            let by_halves = (self.bytes.capacity() * 3 / 2).max(1 << 10);
            let capacity = len.max(by_halves.min(most));
            let more = (capacity - self.bytes.capacity()) as u64;
            if capacity > most || !self.held.grow(more) {
                self.overflow();
                return;
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// What came; `None` where memory ran out.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        (!self.overflowed).then_some(&self.bytes)
    }

    fn overflow(&mut self) {
        self.overflowed = true;
        self.bytes = Vec::new();
        self.held.clear();
        self.held.budget.metrics.overflowed.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: u64) -> (Budget, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        (Budget::of_captures(limit, Arc::clone(&metrics)), metrics)
    }

    #[test]
    fn a_capture_keeps_what_came_and_gives_its_memory_back() {
        let (budget, metrics) = budget(1 << 20);
        let mut capture = Capture::new(&budget);
        for _ in 0..1_000 {
            capture.push(&Bytes::from_static(b"0123456789"));
        }
        assert_eq!(capture.bytes().unwrap(), b"0123456789".repeat(1_000));
        let held = metrics.counts().capture_bytes;
        assert_eq!(held, capture.bytes.capacity() as u64);
        assert!((10_000..16_000).contains(&held), "{held}");
        drop(capture);
        assert_eq!(metrics.counts().capture_bytes, 0);
    }

    #[test]
    fn a_reply_may_take_all_of_its_share() {
        let (budget, _) = budget(16 << 10);
        let mut capture = Capture::new(&budget);
        for _ in 0..19 {
            capture.push(&Bytes::from_static(&[b'x'; 100]));
        }
        assert_eq!(capture.bytes().map(<[u8]>::len), Some(1_900));
    }

    #[test]
    fn beyond_the_budget_it_lets_go_and_counts() {
        let (budget, metrics) = budget(16 << 10);
        let mut captures: Vec<_> = (0..20).map(|_| Capture::new(&budget)).collect();
        for capture in &mut captures {
            capture.push(&Bytes::from_static(&[b'x'; 1_024]));
        }
        let n_whole = captures
            .iter()
            .filter(|capture| capture.bytes().is_some())
            .count();
        assert_eq!((n_whole, metrics.counts().overflowed), (16, 4));
        let mut alone = Capture::new(&self::budget(16 << 10).0);
        for _ in 0..3 {
            alone.push(&Bytes::from_static(&[b'x'; 1_024]));
        }
        assert_eq!(alone.bytes(), None, "a runaway took more than its share");
        captures[0].push(&Bytes::from_static(&[b'x'; 4_096]));
        assert_eq!(metrics.counts().capture_bytes, 15 * 1_024);
    }
}
