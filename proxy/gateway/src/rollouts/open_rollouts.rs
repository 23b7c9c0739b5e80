//! The open rollouts: who may talk as one, and when one has taken too long.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::HeaderMap;
use metaclaw_chat::{RolloutId, Secret, head, now_ms};
use metaclaw_turns::{LogError, Rollout, RolloutEnd, RolloutFilter, TurnLog};
use tokio::{sync::Notify, time::Instant};

use super::path::RolloutPath;
use crate::{auth::caller::shown_keys, lock::lock};

/// The most rollouts that may be open at once.
const MAX_OPEN: usize = 4_096;
/// How many bytes of a parse error are answered.
const MAX_ERROR: usize = 300;
/// How long to wait after the log could not end a rollout.
const AGAIN: Duration = Duration::from_secs(5);

/// Why a rollout cannot be opened, closed or talked to.
#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    #[error(
        "there is no rollout {id:?}, or it is closed: rollouts are opened with POST /v1/rollouts"
    )]
    Unknown { id: String },
    #[error(
        "the key is not that of rollout {id}: send the api_key that POST /v1/rollouts answered"
    )]
    WrongKey { id: RolloutId },
    #[error("{n} rollouts are open, and no more may be at once: close some (POST /v1/feedback)")]
    TooMany { n: usize },
    #[error("{0}")]
    Invalid(String),
    #[error("rollouts need the turn log, and this proxy records nothing: turns.enabled is false")]
    Unrecorded,
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The rollouts that are open, in memory and in the log.
#[derive(Debug)]
pub struct Rollouts {
    log: TurnLog,
    /// Each with the moment when this process ends it, which does not move when the machine's clock is set.
    // pair: a rollout and its end
    open: Mutex<HashMap<RolloutId, (Arc<Rollout>, Instant)>>,
    /// Notified when a rollout was opened, whose deadline may be the next one.
    opened: Notify,
}

// === impl Rollouts ===

impl Rollouts {
    /// Reads the rollouts that an earlier process left open: their agents continue.
    ///
    /// # Errors
    /// Returns the log's error.
    pub fn load(log: TurnLog) -> BoxFuture<'static, Result<Arc<Self>, LogError>> {
        Box::pin(async move {
            let filter = RolloutFilter {
                only_open: true,
                ..RolloutFilter::default()
            };
            let open = log.rollouts(filter).await?.into_iter();
            let now_ms = now_ms();
            let open = open.map(|it| (it.id.clone(), until_its_end(it, now_ms)));
            let open = open.collect();
            Ok(Arc::new(Self {
                log,
                open: Mutex::new(open),
                opened: Notify::new(),
            }))
        })
    }

    pub(crate) fn log(&self) -> &TurnLog {
        &self.log
    }

    /// Returns the open rollout that a request is sent to, if it shows its key.
    pub(crate) fn caller(
        &self,
        path: &RolloutPath,
        headers: &HeaderMap,
    ) -> Result<Arc<Rollout>, RolloutError> {
        let id = path.0.parse::<RolloutId>().ok();
        let known = id.and_then(|id| Some(Arc::clone(&lock(&self.open).get(&id)?.0)));
        let rollout = known.ok_or_else(|| RolloutError::Unknown { id: path.0.clone() })?;
        // What is compared is a hash, so the time does not tell how much of a key was right.
        if shown_keys(headers).any(|key| key_hash(key) == rollout.key_hash) {
            Ok(rollout)
        } else {
            let id = rollout.id.clone();
            Err(RolloutError::WrongKey { id })
        }
    }

    /// Opens a rollout. `key` is its key's hash ([`key_hash`]).
    pub(crate) async fn open(&self, rollout: Rollout) -> Result<(), RolloutError> {
        let n = lock(&self.open).len();
        if n >= MAX_OPEN {
            return Err(RolloutError::TooMany { n });
        }
        self.log.open_rollout(rollout.clone()).await?;
        let id = rollout.id.clone();
        lock(&self.open).insert(id, until_its_end(rollout, now_ms()));
        self.opened.notify_one();
        Ok(())
    }

    /// Closes a rollout: its outcome judges its turns.
    ///
    /// # Errors
    /// Returns the log's error: it is unknown, or closed already.
    pub fn close<'a>(
        &'a self,
        id: &'a RolloutId,
        end: RolloutEnd,
    ) -> BoxFuture<'a, Result<Rollout, LogError>> {
        Box::pin(async move {
            let closed = self.log.close_rollout(id, end, now_ms()).await?;
            lock(&self.open).remove(id);
            Ok(closed)
        })
    }

    /// Ends rollouts at their deadlines. Runs until it is dropped.
    pub fn end_late_ones(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let opened = self.opened.notified();
                match self.next_deadline() {
                    Some(wait) => tokio::select! {
                        () = opened => {}
                        () = tokio::time::sleep(wait) => {
                            if let Err(error) = self.end_due().await {
                                tracing::warn!(%error, "a rollout that took too long could not be ended");
                                tokio::time::sleep(AGAIN).await;
                            }
                        }
                    },
                    None => opened.await,
                }
            }
        })
    }

    fn next_deadline(&self) -> Option<Duration> {
        let deadlines = lock(&self.open);
        let next = deadlines.values().map(|it| it.1).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    async fn end_due(&self) -> Result<(), LogError> {
        let now = Instant::now();
        let due = |(it, end): &(_, _)| (*end <= now).then(|| Arc::clone(it));
        let due: Vec<_> = lock(&self.open).values().filter_map(due).collect();
        for rollout in due {
            tracing::info!(rollout = %rollout.id, task = %rollout.task, "nobody closed this rollout in time: it is unfinished, and is not trained on");
            match self.close(&rollout.id, RolloutEnd::Unfinished).await {
                // Somebody closed it, or forgot it, in between.
                Ok(_) | Err(LogError::RolloutClosed { .. } | LogError::NoSuchRollout { .. }) => {
                    lock(&self.open).remove(&rollout.id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn until_its_end(rollout: Rollout, now_ms: u64) -> (Arc<Rollout>, Instant) {
    let left_ms = rollout.deadline_ms.saturating_sub(now_ms);
    let whole_ms = rollout.deadline_ms.saturating_sub(rollout.opened_ms);
    let left = Duration::from_millis(left_ms.min(whole_ms));
    (Arc::new(rollout), Instant::now() + left)
}

/// Returns the beginning of a parse error, which may quote the caller's own text.
pub(super) fn shortened(error: &serde_json::Error) -> String {
    head(&error.to_string(), MAX_ERROR).to_owned()
}

/// Returns what the log keeps of a rollout's key.
pub(super) fn key_hash(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

/// Makes a key, which nobody can guess.
pub(super) fn new_key() -> Secret {
    Secret::from(format!("sk-rollout-{:032x}", rand::random::<u128>()))
}
