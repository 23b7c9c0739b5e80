//! Recognises sessions of clients that name none, by their conversation.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroUsize,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lru::LruCache;
use metaclaw_chat::{AgentId, ChainHash, SaidHash, SessionId, now_ms};
use tokio::time::Instant;

use crate::lock::lock;

/// The number of conversations that are remembered, 150 bytes each.
const BOUND: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

/// The session of each known conversation.
///
/// A conversation is remembered as it was requested and as it was answered, so that a retry, and a client that
/// continues before the answer's last byte, find their session.
#[derive(Debug)]
pub(crate) struct Lineage {
    known: Mutex<LruCache<(ChainHash, CacheKey), KnownChain>>,
    /// For so long, two conversations that begin alike count as one.
    idle: Duration,
    /// Distinguishes sessions of the same millisecond.
    n_made: AtomicU32,
}

/// The hash of a request's `prompt_cache_key`, or 0 for none.
type CacheKey = u64;
const NO_KEY: CacheKey = 0;
/// The key under which an answered conversation is found by a request with another cache key.
const ANY_KEY: CacheKey = u64::MAX;

#[derive(Debug, Clone)]
struct KnownChain {
    session: SessionId,
    /// Set if nothing was answered yet, so that any other conversation might begin in the same way.
    opening: Option<Instant>,
}

/// The session of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundSession {
    pub(super) session: SessionId,
    /// Whether it is a new session, because none was known.
    pub(super) is_new: bool,
}

// === impl Lineage ===

impl Lineage {
    /// Remembers the conversations of the log, given the newest first.
    pub(crate) fn new(idle: Duration, log: Vec<(AgentId, ChainHash, SessionId)>) -> Self {
        let mut known = LruCache::new(BOUND);
        for (_, chain, session) in log.into_iter().rev() {
            let opening = None;
            known.put((chain, NO_KEY), KnownChain { session, opening });
        }
        Self {
            known: Mutex::new(known),
            idle,
            n_made: AtomicU32::new(0),
        }
    }

    /// Returns the session of the longest known part of the conversation, else a new one.
    ///
    /// `chains` has the hash after each message. The whole conversation is remembered for the next request.
    /// Conversations with different cache keys that begin alike are different. Each may continue one without a key,
    /// such as the log's. A request that repeats an answered conversation continues it whatever its key, because
    /// nanobot creates a new key at each start.
    pub(super) fn session(
        &self,
        agent: &AgentId,
        cache_key: Option<&str>,
        chains: &[ChainHash],
    ) -> FoundSession {
        let key = cache_key.map_or(NO_KEY, hash);
        let start = ChainHash::start(agent);
        let Some(&whole) = chains.last().filter(|chain| **chain != start) else {
            // It has no text of the owner, so every such request looks the same.
            let session = self.make(start);
            return FoundSession {
                session,
                is_new: true,
            };
        };
        let mut known = lock(&self.known);
        let mut longest_first = chains.iter().rev().filter(|chain| **chain != start);
        let is_stale = |since: Instant| since.elapsed() >= self.idle;
        let mut go_on = |chain: ChainHash, key: CacheKey| {
            let found = known.get(&(chain, key))?;
            let is_other = found.opening.is_some_and(is_stale);
            (!is_other).then(|| found.session.clone())
        };
        let session = longest_first.find_map(|chain| {
            let keyed = (key != NO_KEY).then(|| go_on(*chain, key)).flatten();
            let keyed = keyed.or_else(|| go_on(*chain, NO_KEY));
            keyed.or_else(|| (key != NO_KEY).then(|| go_on(*chain, ANY_KEY)).flatten())
        });
        let is_new = session.is_none();
        let session = session.unwrap_or_else(|| self.make(whole));
        let answered = KnownChain {
            session: session.clone(),
            opening: None,
        };
        let asked = KnownChain {
            session: session.clone(),
            opening: Some(Instant::now()),
        };
        let once_answered = whole.then_said(SaidHash::ASSISTANT);
        if key != NO_KEY {
            known.put((once_answered, ANY_KEY), answered.clone());
        }
        known.put((once_answered, key), answered);
        known.put((whole, key), asked);
        FoundSession { session, is_new }
    }

    /// Makes a name that no other session has, from the time, a counter, and a part of the hash.
    #[expect(
        clippy::expect_used,
        reason = "at most 50 hexadecimal digits and dashes are a name"
    )]
    fn make(&self, chain: ChainHash) -> SessionId {
        let n = self.n_made.fetch_add(1, Ordering::Relaxed);
        let now = now_ms();
        // The hash shows its first 6 bytes.
        let name = format!("auto-{now:x}-{n:x}-{chain:?}");
        name.parse().expect("a legal session name")
    }
}

fn hash(cache_key: &str) -> CacheKey {
    let mut hasher = DefaultHasher::new();
    cache_key.hash(&mut hasher);
    hasher.finish().clamp(NO_KEY + 1, ANY_KEY - 1)
}
