//! The state of the log, which others can read without waiting.

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use metaclaw_chat::{TurnId, lock};
use tokio::sync::{broadcast, watch};

use crate::{counts::BreakCounts, session_names::SessionNames, turn::BreakCause};

/// Ids that a slow subscriber may lag behind. Beyond that, it gets an error and has to search the log.
const SUBSCRIBER_LAG: usize = 1_024;
const LATEST_BREAKS: usize = 8;

/// The present state of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogHealth {
    /// How long the oldest turn that is not flushed yet has been waiting. Under load this is 50 ms. Over 100 ms is
    /// worth an alarm. Over some seconds, the disk hangs.
    pub oldest_unflushed: Option<Duration>,
    /// Why the store cannot be used, while it is being reopened.
    pub broken: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOutcome {
    /// Whether there was a log before.
    pub recovered: bool,
    /// A damaged log that was moved aside, and replaced by an empty one.
    pub moved_aside: Option<MovedAside>,
    /// Folder of damaged parts of the database that were moved aside.
    pub repaired: Option<PathBuf>,
    /// Number of transactions that were flushed once and are lost: the end of the file was cut off or damaged, or the
    /// power failed. The remaining data is complete.
    pub n_lost: u64,
    /// Number of unreadable pages of the database. Their content is lost, and all other data is there.
    pub n_gaps: u64,
    /// A copy of the log from before it lost data. A large log is not copied before it is opened. If it lost its last
    /// transactions, this is the database as sled left it.
    pub copied: Option<PathBuf>,
}

/// A log that was moved aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedAside {
    /// The path that the file was moved to.
    pub to: PathBuf,
    /// Why the file was moved.
    pub why: String,
}

/// Turns whose prompts broke with an earlier one, since the log was opened.
#[derive(Debug, Default)]
struct BreaksSeen {
    counts: BreakCounts,
    /// The latest of them, the oldest first. Their words are read from the log when they are asked for.
    latest: VecDeque<TurnId>,
}

#[derive(Debug)]
pub(crate) struct LogState {
    broken: watch::Sender<Option<String>>,
    /// Since when each turn waits, with the turn's unique number.
    waiting: Mutex<BTreeSet<(Instant, u64)>>,
    pub(crate) appended: broadcast::Sender<TurnId>,
    breaks: Mutex<BreaksSeen>,
    pub(crate) names: Arc<SessionNames>,
}

// === impl LogState ===

impl LogState {
    pub(crate) fn new() -> Self {
        Self {
            broken: watch::Sender::new(None),
            waiting: Mutex::default(),
            appended: broadcast::Sender::new(SUBSCRIBER_LAG),
            breaks: Mutex::default(),
            names: Arc::default(),
        }
    }

    pub(crate) fn health(&self) -> LogHealth {
        let waiting = self.waiting();
        LogHealth {
            oldest_unflushed: waiting.first().map(|(since, _)| since.elapsed()),
            broken: self.broken.borrow().clone(),
        }
    }

    pub(crate) fn prompts_broke(&self, turns: &[(TurnId, BreakCause)]) {
        let mut breaks = lock(&self.breaks);
        for (id, cause) in turns {
            breaks.counts.add(*cause);
            breaks.latest.push_back(*id);
            if breaks.latest.len() > LATEST_BREAKS {
                breaks.latest.pop_front();
            }
        }
    }

    pub(crate) fn break_counts(&self) -> BreakCounts {
        lock(&self.breaks).counts
    }

    /// Returns the latest turns whose prompts broke, the newest first.
    pub(crate) fn latest_breaks(&self) -> Vec<TurnId> {
        lock(&self.breaks).latest.iter().rev().copied().collect()
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, BTreeSet<(Instant, u64)>> {
        lock(&self.waiting)
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
