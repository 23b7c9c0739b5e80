//! How the log is: what others may ask without waiting for it.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use metaclaw_chat::TurnId;
use tokio::sync::{broadcast, watch};

/// Ids that a slow subscriber may be behind; beyond, it is told so and looks through the log.
const SUBSCRIBER_LAG: usize = 1_024;

/// How the log is just now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogHealth {
    /// How long the oldest turn that is not yet flushed has been waiting. Under load that is 50 ms; over
    /// 100 is worth an alarm, and over some seconds the disk hangs.
    pub oldest_unflushed: Option<Duration>,
    /// Turns that wait.
    pub n_unflushed: usize,
    /// Why the store cannot be used, while it is being reopened.
    pub broken: Option<String>,
}

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOutcome {
    /// Whether there was a log.
    pub recovered: bool,
    /// A damaged log was moved here, and an empty one begun.
    pub moved_aside: Option<MovedAside>,
    /// Transactions that were flushed once and are gone: the end of the file was cut off, or the
    /// power failed. What is left is whole.
    pub n_lost: u64,
}

/// A damaged log that was put out of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedAside {
    /// Where it is now.
    pub to: PathBuf,
    /// What was wrong with it.
    pub why: String,
}

/// What the log's thread and its handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    closed: AtomicBool,
    broken: watch::Sender<Option<String>>,
    n_unflushed: AtomicUsize,
    oldest: Mutex<Oldest>,
    pub(crate) appended: broadcast::Sender<TurnId>,
}

/// Since when the oldest turn waits, as far as can be told without a look at each.
#[derive(Debug)]
struct Oldest {
    /// Of the transaction under way, if it began with a turn.
    taken: Option<Instant>,
    /// Else not before this: when the last transaction began that was flushed, or when the first turn
    /// came after none had waited.
    after: Instant,
}

/// A turn that waits to be flushed; dropping it ends the waiting.
#[derive(Debug)]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    pub(crate) since: Instant,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            closed: AtomicBool::new(false),
            broken: watch::Sender::new(None),
            n_unflushed: AtomicUsize::new(0),
            oldest: Mutex::new(Oldest {
                taken: None,
                after: Instant::now(),
            }),
            appended: broadcast::Sender::new(SUBSCRIBER_LAG),
        }
    }

    pub(crate) fn health(&self) -> LogHealth {
        let n_unflushed = self.n_unflushed.load(Ordering::Relaxed);
        let age = || {
            let oldest = self.oldest();
            oldest.taken.unwrap_or(oldest.after).elapsed()
        };
        LogHealth {
            oldest_unflushed: (n_unflushed > 0).then(age),
            n_unflushed,
            broken: self.broken.borrow().clone(),
        }
    }

    pub(crate) fn wait(self: &Arc<Self>) -> Ticket {
        let since = Instant::now();
        if self.n_unflushed.load(Ordering::Relaxed) == 0 {
            self.oldest().after = since;
        }
        self.n_unflushed.fetch_add(1, Ordering::Relaxed);
        Ticket {
            shared: Arc::clone(self),
            since,
        }
    }

    /// A transaction begins with a turn that waits since then.
    pub(crate) fn takes(&self, since: Instant) {
        self.oldest().taken = Some(since);
    }

    /// A transaction that began then was flushed.
    pub(crate) fn flushed(&self, began: Instant) {
        let mut oldest = self.oldest();
        oldest.taken = None;
        oldest.after = oldest.after.max(began);
    }

    fn oldest(&self) -> MutexGuard<'_, Oldest> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_broken(&self, why: Option<String>) {
        self.broken.send_if_modified(|broken| {
            let is_new = *broken != why;
            *broken = why;
            is_new
        });
    }

    pub(crate) fn watch_broken(&self) -> watch::Receiver<Option<String>> {
        self.broken.subscribe()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.n_unflushed.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_waits_since_it_came_or_since_the_last_flush() {
        const LONG: Duration = Duration::from_secs(5);
        let shared = Arc::new(Shared::new());
        let age = || shared.health().oldest_unflushed;
        let long_ago = || Instant::now().checked_sub(LONG).unwrap();
        assert_eq!(age(), None);
        shared.oldest().after = long_ago();
        let ticket = shared.wait();
        assert!(age().unwrap() < LONG, "nobody waited before it");
        // Whatever the thread does meanwhile, as a question that takes long.
        shared.oldest().after = long_ago();
        let other = shared.wait();
        assert!(age().unwrap() >= LONG);
        shared.flushed(Instant::now());
        assert!(age().unwrap() < LONG);
        shared.takes(long_ago());
        assert!(age().unwrap() >= LONG);
        drop((ticket, other));
        assert_eq!(age(), None);
    }
}
