//! One sampler at the server.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::session::Session;
use crate::tinker::SamplerId;

/// The weights that are sampled from.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) session: Arc<Session>,
    pub(super) id: SamplerId,
    next_seq: AtomicU64,
}

// === impl Sampler ===

impl Sampler {
    pub(super) fn new(session: Arc<Session>, id: SamplerId) -> Self {
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
