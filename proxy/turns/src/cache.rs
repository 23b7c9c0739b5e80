//! What the log's thread remembers between operations. It is thrown away when the store fails: it may
//! know what was never stored.

use lru::LruCache;

use crate::session::SessionIndex;

/// Bytes of memory that all sessions take together. Beyond, the least recent ones are read again from
/// the log when they go on.
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Cache {
    sessions: LruCache<u64, SessionIndex>,
    n_bytes: usize,
}

// === impl Cache ===

impl Cache {
    pub(crate) fn new() -> Self {
        Self {
            sessions: LruCache::unbounded(),
            n_bytes: 0,
        }
    }

    /// A session, to be put back after use.
    pub(crate) fn take(&mut self, number: u64) -> Option<SessionIndex> {
        let session = self.sessions.pop(&number)?;
        self.n_bytes -= session.n_bytes();
        Some(session)
    }

    pub(crate) fn put(&mut self, number: u64, session: SessionIndex) {
        self.n_bytes += session.n_bytes();
        self.sessions.put(number, session);
        while self.n_bytes > MAX_BYTES {
            let Some((_, oldest)) = self.sessions.pop_lru() else {
                break;
            };
            self.n_bytes -= oldest.n_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_sessions_are_forgotten_and_the_bound_holds() {
        let mut cache = Cache::new();
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
