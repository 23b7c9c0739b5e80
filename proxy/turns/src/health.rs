//! How the log is: what others may ask without waiting for it.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    /// How long the oldest turn that is not yet flushed has been waiting. Over 50 ms is worth an
    /// alarm; over some seconds the disk hangs.
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
    unflushed: Mutex<BTreeMap<u64, Instant>>,
    tickets: AtomicU64,
    pub(crate) appended: broadcast::Sender<TurnId>,
}

/// A turn that waits to be flushed; dropping it ends the waiting.
#[derive(Debug)]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    number: u64,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            closed: AtomicBool::new(false),
            broken: watch::Sender::new(None),
            unflushed: Mutex::default(),
            tickets: AtomicU64::new(0),
            appended: broadcast::Sender::new(SUBSCRIBER_LAG),
        }
    }

    pub(crate) fn health(&self) -> LogHealth {
        let unflushed = self.unflushed();
        LogHealth {
            oldest_unflushed: unflushed.values().next().map(Instant::elapsed),
            n_unflushed: unflushed.len(),
            broken: self.broken.borrow().clone(),
        }
    }

    pub(crate) fn wait(self: &Arc<Self>) -> Ticket {
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        self.unflushed().insert(number, Instant::now());
        Ticket {
            shared: Arc::clone(self),
            number,
        }
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

    fn unflushed(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.unflushed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.unflushed().remove(&self.number);
    }
}
