//! Where programs run: on this machine, or at environments on other ones. Each place has slots; an episode holds one.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::{
    address::HttpAddress,
    http::{fetch, in_words},
    program::{LocalProgram, ProgramEnd, ProgramError, ProgramJob},
    proxy::error_message,
};

pub(crate) mod serve;

const HEALTH_DEADLINE: Duration = Duration::from_secs(10);
/// The time beyond the timeout of an episode that an environment has to end it and to answer.
const OVERTIME: Duration = Duration::from_secs(30);

const MOST_SLOTS: usize = 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EnvironmentHealth {
    /// How many episodes it runs at the same time.
    pub at_once: usize,
}

#[derive(Debug)]
pub(crate) struct EnvironmentPool {
    places: Vec<ProgramPlace>,
    slots: Mutex<Slots>,
    /// One permit for each free slot, and some for slots of places that were left out meanwhile.
    permits: Semaphore,
    /// One permit for each episode that may run.
    episodes: Semaphore,
}

/// A slot that an episode holds. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct PoolSlot<'a> {
    pool: &'a EnvironmentPool,
    index: usize,
    _episode: SemaphorePermit<'a>,
}

#[derive(Debug)]
enum ProgramPlace {
    Local(LocalProgram),
    Remote(RemoteEnvironment),
}

#[derive(Debug)]
struct RemoteEnvironment {
    url: HttpAddress,
    http: reqwest::Client,
    key: Option<String>,
    timeout: Duration,
}

#[derive(Debug)]
struct Slots {
    free: Vec<usize>,
    is_live: Vec<bool>,
}

#[derive(Debug, Clone)]
pub(crate) struct EnvironmentAccess {
    pub http: reqwest::Client,
    pub key: Option<String>,
    /// The longest time of an episode.
    pub timeout: Duration,
    /// The most episodes at the same time.
    pub at_once: usize,
}

/// Why a program did not end at its place.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The place is gone; the episode may be run again elsewhere.
    #[error("environment {url}: {why}")]
    Gone { url: HttpAddress, why: String },
    #[error("no environment is left: start `metaclaw rollout serve` again, and then this command")]
    NoneLeft,
}

// === impl EnvironmentPool ===

impl EnvironmentPool {
    pub(crate) fn local(program: LocalProgram, at_once: usize) -> Self {
        Self {
            places: vec![ProgramPlace::Local(program)],
            slots: Mutex::new(Slots {
                free: vec![0; at_once],
                is_live: vec![true],
            }),
            permits: Semaphore::new(at_once),
            episodes: Semaphore::new(at_once),
        }
    }

    /// Environments on other machines. None of them is used before [`Self::refresh`].
    pub(crate) fn remote(urls: &[HttpAddress], access: &EnvironmentAccess) -> Self {
        let place = |url: &HttpAddress| {
            ProgramPlace::Remote(RemoteEnvironment {
                url: url.clone(),
                http: access.http.clone(),
                key: access.key.clone(),
                timeout: access.timeout,
            })
        };
        Self {
            places: urls.iter().map(place).collect(),
            slots: Mutex::new(Slots {
                free: Vec::new(),
                is_live: vec![false; urls.len()],
            }),
            permits: Semaphore::new(0),
            episodes: Semaphore::new(access.at_once),
        }
    }

    /// Asks the environments that are not used how they are, and uses those that answer. `tell` gets a line for each.
    pub(crate) async fn refresh(&self, tell: impl Fn(&str)) {
        for (index, place) in self.places.iter().enumerate() {
            let ProgramPlace::Remote(remote) = place else {
                continue;
            };
            if self.slots().is_live[index] {
                continue;
            }
            match remote.health().await {
                Ok(health) => {
                    let n = health.at_once.min(MOST_SLOTS);
                    tell(&format!("environment {}: {n} at once", remote.url));
                    let mut slots = self.slots();
                    slots.is_live[index] = true;
                    slots.free.extend(std::iter::repeat_n(index, n));
                    self.permits.add_permits(n);
                }
                Err(why) => tell(&format!("environment {} is left out: {why}", remote.url)),
            }
        }
        self.close_if_none_is_left();
    }

    /// Waits for a slot of a live place.
    ///
    /// # Errors
    /// [`PoolError::NoneLeft`] if every environment was left out.
    pub(crate) async fn take(&self) -> Result<PoolSlot<'_>, PoolError> {
        let left = |_| PoolError::NoneLeft;
        let episode = self.episodes.acquire().await.map_err(left)?;
        loop {
            self.permits.acquire().await.map_err(left)?.forget();
            if let Some(index) = self.slots().free.pop() {
                return Ok(PoolSlot {
                    pool: self,
                    index,
                    _episode: episode,
                });
            }
        }
    }

    fn leave_out(&self, index: usize) {
        let mut slots = self.slots();
        slots.is_live[index] = false;
        slots.free.retain(|it| *it != index);
        drop(slots);
        self.close_if_none_is_left();
    }

    fn close_if_none_is_left(&self) {
        if !self.slots().is_live.contains(&true) {
            self.permits.close();
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl PoolSlot ===

impl PoolSlot<'_> {
    /// Runs a program at this slot's place.
    ///
    /// # Errors
    /// [`PoolError`]. If the place is gone, it is used no more.
    pub(crate) async fn run(
        self,
        job: &ProgramJob,
        cancel: &CancellationToken,
    ) -> Result<ProgramEnd, PoolError> {
        match &self.pool.places[self.index] {
            ProgramPlace::Local(program) => Ok(program.run(job, cancel).await?),
            ProgramPlace::Remote(remote) => {
                let ended = tokio::select! {
                    ended = remote.run(job) => ended,
                    () = cancel.cancelled() => Err(ProgramError::Interrupted.into()),
                };
                if matches!(ended, Err(PoolError::Gone { .. })) {
                    self.pool.leave_out(self.index);
                }
                ended
            }
        }
    }
}

impl Drop for PoolSlot<'_> {
    fn drop(&mut self) {
        let mut slots = self.pool.slots();
        if slots.is_live[self.index] {
            slots.free.push(self.index);
            self.pool.permits.add_permits(1);
        }
    }
}

// === impl RemoteEnvironment ===

impl RemoteEnvironment {
    async fn health(&self) -> Result<EnvironmentHealth, String> {
        let asking = self.http.get(self.url.below("healthz"));
        let reply = fetch(self.keyed(asking).timeout(HEALTH_DEADLINE)).await;
        let (status, bytes) = reply.map_err(unreachable)?;
        if !status.is_success() {
            return Err(format!("it answered {status}: {}", error_message(&bytes)));
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| format!("it answers like no `metaclaw rollout serve`: {error}"))
    }

    async fn run(&self, job: &ProgramJob) -> Result<ProgramEnd, PoolError> {
        let gone = |why: String| PoolError::Gone {
            url: self.url.clone(),
            why,
        };
        let asking = self.keyed(self.http.post(self.url.below("run")).json(job));
        let reply = fetch(asking.timeout(self.timeout + OVERTIME)).await;
        let (status, bytes) = reply.map_err(|error| gone(unreachable(error)))?;
        if status != StatusCode::OK {
            let why = error_message(&bytes);
            return Err(gone(format!("it answered {status}: {why}")));
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| gone(format!("its answer is no end of an episode: {error}")))
    }

    fn keyed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

fn unreachable(error: reqwest::Error) -> String {
    let why = if error.is_timeout() {
        "it did not answer in time"
    } else {
        "it cannot be reached"
    };
    format!("{why}: {}", in_words(error))
}

#[cfg(test)]
mod tests;
