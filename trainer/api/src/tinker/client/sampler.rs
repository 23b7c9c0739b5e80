//! A sampler at the server.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::session::OpenSession;
use crate::tinker::SamplerId;

/// A sampler in a session, with the number of its next call.
#[derive(Debug)]
pub(super) struct ServerSampler {
    pub(super) session: Arc<OpenSession>,
    pub(super) id: SamplerId,
    next_seq: AtomicU64,
}

// === impl ServerSampler ===

impl ServerSampler {
    pub(super) fn new(session: Arc<OpenSession>, id: SamplerId) -> Self {
        Self {
            session,
            id,
            next_seq: AtomicU64::new(0),
        }
    }

    /// Returns the number of its next call.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq.fetch_add(1, Ordering::Relaxed)
    }
}
