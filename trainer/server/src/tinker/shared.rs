//! The state and the limits that Tinker's routes share.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::{
    futures::{Futures, PromiseLimits},
    registry::Registry,
};
use crate::error::{ApiError, Result};

/// The unit of the space for waiting calls.
const UNIT: usize = 1 << 10;

/// The most bodies that are decompressed in parallel.
const UNPACKING: usize = 2;

/// The most continuations that are sampled in parallel for Tinker's clients; others wait.
pub(crate) const SAMPLES_AT_ONCE: u16 = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct TinkerLimits {
    /// How long `retrieve_future` waits for a result, at most half of `session_idle`. Clients wait 45 s.
    pub(crate) hold: Duration,
    /// A session ends if its client is silent for this long; clients send a heartbeat every 10 s.
    pub(crate) session_idle: Duration,
    /// The size of the bodies of waiting calls, in bytes.
    pub(crate) queued: usize,
    /// The size of a body, in bytes; the SDK splits what is larger than 5 MB.
    pub(crate) body: usize,
    /// The size of all bodies that are being read, in bytes.
    pub(crate) bodies: usize,
    pub(crate) n_bodies: usize,
    pub(crate) n_samples: u32,
    pub(crate) keep: PromiseLimits,
}

#[derive(Debug)]
pub(crate) struct Tinker {
    pub(crate) registry: Registry,
    pub(crate) futures: Futures,
    pub(crate) samples: Semaphore,
    pub(crate) unpacking: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    pub(crate) limits: TinkerLimits,
    /// Set once a task ends expired sessions.
    pub(crate) watched: OnceLock<()>,
    room: Arc<Semaphore>,
}

impl Default for TinkerLimits {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(30),
            session_idle: Duration::from_secs(300),
            queued: 512 << 20,
            body: 32 << 20,
            bodies: 256 << 20,
            n_bodies: 1024,
            n_samples: u32::from(SAMPLES_AT_ONCE),
            keep: PromiseLimits {
                n: 16_384,
                bytes: 256 << 20,
                time: Duration::from_secs(600),
            },
        }
    }
}

// === impl Tinker ===

impl Tinker {
    pub(crate) fn new(limits: TinkerLimits) -> Self {
        Self {
            registry: Registry::default(),
            futures: Futures::new(limits.keep),
            samples: Semaphore::new(limits.n_samples as usize),
            unpacking: Arc::new(Semaphore::new(UNPACKING)),
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(limits.queued.div_ceil(UNIT))),
            watched: OnceLock::new(),
            limits,
        }
    }

    /// Room for a waiting call. A call that other calls wait for always gets room, so that they cannot block each
    /// other.
    ///
    /// # Errors
    /// Returns 429 if there is no space.
    pub(crate) fn room(
        &self,
        n_bytes: usize,
        is_waited_for: bool,
    ) -> Result<Option<OwnedSemaphorePermit>> {
        let n_units = u32::try_from(n_bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        match Arc::clone(&self.room).try_acquire_many_owned(n_units) {
            Ok(room) => Ok(Some(room)),
            Err(_) if is_waited_for => Ok(None),
            Err(_) => Err(ApiError::busy(format!(
                "{} bytes of calls wait for their turn, and this one does not fit: try again later",
                self.limits.queued
            ))),
        }
    }
}
