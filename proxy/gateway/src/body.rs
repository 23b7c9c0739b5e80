//! Bodies of requests, read whole: bounded each by `proxy.max_body`, and all together by
//! `proxy.body_memory`. Both bounds hold for what has really come; what a client announces takes
//! nothing from the others.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metaclaw_chat::{Size, Span};
use tokio::time::timeout;

use crate::{
    capture::{Budget, Held},
    config::ProxyConfig,
    metrics::Metrics,
    refusal::Refusal,
};

/// How long, and how much of, a body that is refused is read on and thrown away: a client that is
/// cut off while it writes never sees the answer that says why.
const PATIENCE: Duration = Duration::from_secs(5);
const DISCARDED: u64 = 256 << 20;
/// The longest silence inside a request's body.
const STALL: Duration = Duration::from_secs(60);
/// The most that is set aside for a body before any of it has come.
const EXPECTED: u64 = 64 << 10;

/// The bounds on bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    max_body: Size,
    memory: Size,
    budget: Budget,
}

/// A body as far as it has come, and its part of the memory: given back with the last reference.
struct Growing {
    bytes: Vec<u8>,
    held: Held,
}

// === impl Bodies ===

impl Bodies {
    pub(crate) fn new(config: &ProxyConfig, metrics: &Arc<Metrics>) -> Self {
        let (max_body, memory) = (config.max_body, config.body_memory);
        let budget = Budget::new(memory.0, Arc::clone(metrics), |metrics| &metrics.body_bytes);
        Self {
            max_body,
            memory,
            budget,
        }
    }

    /// Reads a body to its end.
    pub(crate) async fn read(&self, mut body: Incoming) -> Result<Bytes, Refusal> {
        match self.try_read(&mut body).await {
            Ok(bytes) => Ok(bytes),
            Err(refusal) => {
                if matches!(refusal, Refusal::TooLarge { .. } | Refusal::NoRoom { .. }) {
                    discard(body).await;
                }
                Err(refusal)
            }
        }
    }

    async fn try_read(&self, body: &mut Incoming) -> Result<Bytes, Refusal> {
        let limit = self.max_body;
        let hint = body.size_hint();
        let given = hint.exact();
        if given.is_some_and(|given| given > limit.0) {
            return Err(Refusal::TooLarge { limit, given });
        }
        let no_room = || Refusal::NoRoom { limit: self.memory };
        let mut growing = Growing {
            bytes: Vec::new(),
            held: self.budget.nothing(),
        };
        let expected = usize::try_from(hint.lower().min(EXPECTED)).unwrap_or(0);
        growing.reserve(expected).ok_or_else(no_room)?;
        loop {
            let frame = match timeout(STALL, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) => return Err(Refusal::BodyCut),
                Ok(None) => return Ok(growing.into_bytes()),
                Err(_) => return Err(Refusal::BodyStalled { after: Span(STALL) }),
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            if (growing.bytes.len() + data.len()) as u64 > limit.0 {
                let given = None;
                return Err(Refusal::TooLarge { limit, given });
            }
            growing.push(data, limit).ok_or_else(no_room)?;
        }
    }
}

async fn discard(mut body: Incoming) {
    let all = async {
        let mut n_bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if n_bytes > DISCARDED {
                break;
            }
        }
    };
    // Whether it ended or went on is all the same.
    let _ = timeout(PATIENCE, all).await;
}

// === impl Growing ===

impl Growing {
    /// Room for `capacity` bytes in all; `None` where there is no more memory.
    fn reserve(&mut self, capacity: usize) -> Option<()> {
        let more = capacity.saturating_sub(self.bytes.capacity());
        if more > 0 {
            self.held.grow(more as u64).then_some(())?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        Some(())
    }

    /// Takes more of a body that is never longer than `limit`.
    fn push(&mut self, data: &[u8], limit: Size) -> Option<()> {
        let len = self.bytes.len() + data.len();
        if len > self.bytes.capacity() {
            // Grown by halves of its own length at least, so that copying stays cheap.
            let limit = usize::try_from(limit.0).unwrap_or(usize::MAX);
            let by_halves = self.bytes.capacity() * 3 / 2;
            self.reserve(len.max(by_halves.min(limit)))?;
        }
        self.bytes.extend_from_slice(data);
        Some(())
    }

    fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Growing {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
