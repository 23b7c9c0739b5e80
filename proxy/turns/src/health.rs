//! How the log is: what others may ask without waiting for it.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
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
    /// Why the store cannot be used, while it is being reopened.
    pub broken: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOutcome {
    /// Whether there was a log.
    pub recovered: bool,
    /// A log that was damaged was moved here, and an empty one begun.
    pub moved_aside: Option<MovedAside>,
    /// Parts of the database that were damaged, and that it does without, were moved here.
    pub repaired: Option<PathBuf>,
    /// Transactions that were flushed once and are gone: the end of the file was cut off or damaged, or
    /// the power failed. What is left is whole.
    pub n_lost: u64,
    /// Pages of the database that do not read: what they held is gone, all else is there.
    pub n_gaps: u64,
    /// A copy of the log as it was before it lost something. A long log is not copied before it is opened: if it lost its last
    /// transactions, this is the database as sled left it.
    pub copied: Option<PathBuf>,
}

/// A log that was put out of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedAside {
    /// Where it is now.
    pub to: PathBuf,
    /// What was wrong with it.
    pub why: String,
}

/// What the log's thread and its handles share.
#[derive(Debug)]
pub(crate) struct LogState {
    broken: watch::Sender<Option<String>>,
    /// Since when each turn waits, with a number that is its own.
    waiting: Mutex<BTreeSet<(Instant, u64)>>,
    pub(crate) appended: broadcast::Sender<TurnId>,
}

// === impl LogState ===

impl LogState {
    pub(crate) fn new() -> Self {
        Self {
            broken: watch::Sender::new(None),
            waiting: Mutex::default(),
            appended: broadcast::Sender::new(SUBSCRIBER_LAG),
        }
    }

    pub(crate) fn health(&self) -> LogHealth {
        let waiting = self.waiting();
        LogHealth {
            oldest_unflushed: waiting.first().map(|(since, _)| since.elapsed()),
            broken: self.broken.borrow().clone(),
        }
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, BTreeSet<(Instant, u64)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
}
