//! Sessions of clients that name none: told by what was said so far.

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

/// How many conversations are remembered: 150 bytes each.
const BOUND: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

/// Which conversation, as far as it went, belongs to which session.
///
/// A chain is remembered as it was asked and as it is once answered, so that a retry, and a client
/// that goes on before the answer's last byte, find their session.
#[derive(Debug)]
pub(crate) struct Lineage {
    known: Mutex<LruCache<(ChainHash, CacheKey), KnownChain>>,
    /// How long two conversations that begin alike are one.
    idle: Duration,
    /// Tells sessions of the same millisecond apart.
    n_made: AtomicU32,
}

/// The hash of a request's `prompt_cache_key`; 0 for none.
type CacheKey = u64;
const NO_KEY: CacheKey = 0;
/// Under which a conversation with a key is found by a request with another, once it was answered.
const ANY_KEY: CacheKey = u64::MAX;

#[derive(Debug, Clone)]
struct KnownChain {
    session: SessionId,
    /// Nothing was answered yet: the mere beginning of a conversation, as any other might begin.
    opening: Option<Instant>,
}

/// The session that a conversation belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundSession {
    pub(super) session: SessionId,
    /// None was known, and this one was made.
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

    /// The session of the longest part of the conversation that is known, else a new one.
    ///
    /// `chains` has the hash after each message. The whole is remembered for next time. Conversations
    /// with different cache keys that begin alike are different ones; each may go on with one that has none, as the
    /// log's are. A request that repeats an answered conversation goes on with it whatever its key: nanobot draws a
    /// new key each time it starts.
    pub(super) fn session(
        &self,
        agent: &AgentId,
        cache_key: Option<&str>,
        chains: &[ChainHash],
    ) -> FoundSession {
        let key = cache_key.map_or(NO_KEY, hash);
        let start = ChainHash::start(agent);
        let Some(&whole) = chains.last().filter(|chain| **chain != start) else {
            // Not a word of the owner's: every such request looks the same.
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

    /// A name that no other session has: time, a counter, and a piece of the hash.
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
