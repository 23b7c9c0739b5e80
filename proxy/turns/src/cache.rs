//! State that the log's thread remembers between operations. It is discarded when the store fails, because it may
//! contain data that was never stored.

use lru::LruCache;

use crate::session::SessionIndex;

/// Memory of all sessions together, in bytes. Beyond this, the least recently used sessions are read again from the log
/// when they continue.
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct SessionCache {
    sessions: LruCache<u64, SessionIndex>,
    n_bytes: usize,
}

// === impl SessionCache ===

impl SessionCache {
    pub(crate) fn new() -> Self {
        Self {
            sessions: LruCache::unbounded(),
            n_bytes: 0,
        }
    }

    /// Takes a session out. The caller puts it back after use.
    pub(crate) fn take(&mut self, number: u64) -> Option<SessionIndex> {
        let session = self.sessions.pop(&number)?;
        self.n_bytes -= session.n_bytes();
        Some(session)
    }

    pub(crate) fn put(&mut self, number: u64, session: SessionIndex) {
        self.n_bytes += session.n_bytes();
        self.sessions.put(number, session);
        // The session that was used last stays, however large it is, because its next turn would read all of it again.
        while self.n_bytes > MAX_BYTES
            && self.sessions.len() > 1
            && let Some((_, oldest)) = self.sessions.pop_lru()
        {
            self.n_bytes -= oldest.n_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_sessions_are_forgotten_and_the_bound_holds() {
        let mut cache = SessionCache::new();
        let n_sessions = 2 * MAX_BYTES / SessionIndex::default().n_bytes();
        for number in 0..n_sessions as u64 {
            cache.put(number, SessionIndex::default());
        }
        assert!(cache.take(0).is_none());
        assert!(cache.take(n_sessions as u64 - 1).is_some());
        let n_bytes = cache.sessions.len() * SessionIndex::default().n_bytes();
        assert!(n_bytes <= MAX_BYTES && n_bytes == cache.n_bytes);
    }
}
