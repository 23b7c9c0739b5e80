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

const MAX_OPEN: usize = 4_096;
/// The most that one key of some agents may have open, and that all such keys may. The owner's key has the rest.
const MAX_OF_KEY: usize = MAX_OPEN / 8;
const MAX_OF_KEYS: usize = MAX_OPEN / 2;
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
    #[error(
        "{n} rollouts are open{whose}, and no more may be at once: close some (POST /v1/feedback)"
    )]
    TooMany { n: usize, whose: &'static str },
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
    pub(crate) log: TurnLog,
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
            let open = open.map(|rollout| (rollout.id.clone(), until_its_end(rollout, now_ms)));
            let open = open.collect();
            Ok(Arc::new(Self {
                log,
                open: Mutex::new(open),
                opened: Notify::new(),
            }))
        })
    }

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

    pub(crate) async fn open(&self, rollout: Rollout) -> Result<(), RolloutError> {
        self.take_place(&rollout)?;
        let id = rollout.id.clone();
        if let Err(error) = self.log.open_rollout(rollout).await {
            lock(&self.open).remove(&id);
            return Err(error.into());
        }
        self.opened.notify_one();
        Ok(())
    }

    /// Counts a rollout as open before the log has it, so that requests at the same time do not exceed the limits.
    fn take_place(&self, rollout: &Rollout) -> Result<(), RolloutError> {
        let mut open = lock(&self.open);
        let keys = open
            .values()
            .filter_map(|(rollout, _)| rollout.opened_by.as_ref());
        let own = keys
            .clone()
            .filter(|key| rollout.opened_by.as_ref() == Some(key));
        let (n_keys, n_own) = (keys.count(), own.count());
        let (n, whose) = match &rollout.opened_by {
            _ if open.len() >= MAX_OPEN => (open.len(), ""),
            Some(_) if n_own >= MAX_OF_KEY => (n_own, " by this key"),
            Some(_) if n_keys >= MAX_OF_KEYS => (n_keys, " by keys of some agents"),
            _ => {
                let id = rollout.id.clone();
                open.insert(id, until_its_end(rollout.clone(), now_ms()));
                return Ok(());
            }
        };
        Err(RolloutError::TooMany { n, whose })
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
        let next = deadlines.values().map(|(_, end)| *end).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    async fn end_due(&self) -> Result<(), LogError> {
        let now = Instant::now();
        let due = |(rollout, end): &(_, _)| (*end <= now).then(|| Arc::clone(rollout));
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

pub(super) fn key_hash(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().to_string()
}

pub(super) fn new_key() -> Secret {
    Secret::from(format!("sk-rollout-{:032x}", rand::random::<u128>()))
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use metaclaw_turns::{RolloutState, TurnsConfig};

    use super::*;

    /// No operation of the log takes this long.
    const SOON: Duration = Duration::from_secs(10);

    fn rollout(n: u64, key: Option<&str>) -> Rollout {
        Rollout {
            id: RolloutId::new(n, 7),
            agent: "coder".parse().unwrap(),
            task: "t".parse().unwrap(),
            group: "g".parse().unwrap(),
            group_size: 1,
            attempt: 0,
            held_out: false,
            adapter: None,
            run: None,
            opened_by: key.map(str::to_owned),
            key_hash: String::new(),
            opened_ms: 1,
            deadline_ms: u64::MAX,
            state: RolloutState::Open,
        }
    }

    /// One agent's key once took all places for a day, also after a restart.
    #[tokio::test]
    async fn a_key_has_its_share_of_places_and_the_owner_has_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
        let rollouts = Rollouts::load(log.clone()).await.unwrap();
        let many = (0..MAX_OF_KEY as u64 + 20).map(|n| rollouts.open(rollout(n, Some("phone"))));
        let opened = join_all(many).await;
        let n_opened = opened.iter().filter(|opened| opened.is_ok()).count();
        assert_eq!(n_opened, MAX_OF_KEY, "requests at the same time too");
        drop(rollouts);
        let rollouts = Rollouts::load(log).await.unwrap();
        let mut n = 10_000;
        let mut take = |key| {
            n += 1;
            rollouts.take_place(&rollout(n, key))
        };
        let refused = |taken: Result<(), RolloutError>| taken.unwrap_err().to_string();
        let by_key = "512 rollouts are open by this key, and no more may be at once: close some (POST /v1/feedback)";
        assert_eq!(refused(take(Some("phone"))), by_key);
        for key in ["tablet", "desk", "car"] {
            for _ in 0..MAX_OF_KEY {
                take(Some(key)).unwrap();
            }
            assert_eq!(refused(take(Some(key))), by_key);
        }
        assert!(refused(take(Some("fourth"))).contains("2048 rollouts are open by keys of some"));
        for _ in MAX_OF_KEYS..MAX_OPEN {
            take(None).unwrap();
        }
        assert!(refused(take(None)).starts_with("4096 rollouts are open, and"));
        let end = RolloutEnd::Unfinished;
        rollouts.close(&RolloutId::new(0, 7), end).await.unwrap();
        take(Some("fourth")).unwrap();
    }

    #[tokio::test]
    async fn a_rollout_that_nobody_closes_is_unfinished_even_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
        let first = Rollouts::load(log.clone()).await.unwrap();
        let late = Rollout {
            deadline_ms: 2,
            ..rollout(1, None)
        };
        first.open(late.clone()).await.unwrap();
        drop(first);
        let second = Rollouts::load(log.clone()).await.unwrap();
        let ended = async {
            while log.rollout(&late.id).await.unwrap().unwrap().is_open() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = second.end_late_ones() => {}
            ended = tokio::time::timeout(SOON, ended) => ended.unwrap(),
        }
        let state = log.rollout(&late.id).await.unwrap().unwrap().state;
        assert!(
            matches!(state, RolloutState::Unfinished { .. }),
            "{state:?}"
        );
    }
}
