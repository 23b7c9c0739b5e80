//! Finds the session of a request that names none, by its conversation, or by the reply that a Responses request
//! continues.

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

use crate::{LONGEST_NAME, lock::lock};

/// The number of conversations that are remembered, 150 bytes each.
const CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();
/// The number of replies that are remembered. Ids of servers have 50 bytes, so each takes about 250.
const REPLIES: NonZeroUsize = NonZeroUsize::new(20_000).unwrap();

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundSession {
    pub(super) session: SessionId,
    pub(super) is_new: bool,
}

#[derive(Debug)]
pub(crate) struct RecentReplies {
    known: Mutex<LruCache<(AgentId, String), Replied>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replied {
    pub session: SessionId,
    /// The hash of the conversation including the reply.
    pub chain: ChainHash,
}

// === impl Lineage ===

impl Lineage {
    /// Remembers the conversations of the log, given the newest first.
    pub(crate) fn new(idle: Duration, log: Vec<(AgentId, ChainHash, SessionId)>) -> Self {
        let mut known = LruCache::new(CONVERSATIONS);
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

// === impl RecentReplies ===

impl RecentReplies {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::new(LruCache::new(REPLIES)),
        }
    }

    pub(crate) fn get(&self, agent: &AgentId, id: &str) -> Option<Replied> {
        lock(&self.known)
            .get(&(agent.clone(), id.to_owned()))
            .cloned()
    }

    pub(crate) fn put(&self, agent: &AgentId, id: String, replied: Replied) {
        if id.len() <= LONGEST_NAME {
            lock(&self.known).put((agent.clone(), id), replied);
        }
    }
}

fn hash(cache_key: &str) -> CacheKey {
    let mut hasher = DefaultHasher::new();
    cache_key.hash(&mut hasher);
    hasher.finish().clamp(NO_KEY + 1, ANY_KEY - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_known_to_its_own_agent_only() {
        let [main, other]: [AgentId; 2] = ["main", "other"].map(|name| name.parse().unwrap());
        let replies = RecentReplies::new();
        let replied = Replied {
            session: "s".parse().unwrap(),
            chain: ChainHash::start(&main),
        };
        replies.put(&main, "resp_1".to_owned(), replied.clone());
        assert_eq!(replies.get(&main, "resp_1"), Some(replied));
        assert_eq!(replies.get(&other, "resp_1"), None);
    }

    #[test]
    fn a_long_id_is_not_remembered() {
        let agent: AgentId = "main".parse().unwrap();
        let replies = RecentReplies::new();
        let replied = Replied {
            session: "s".parse().unwrap(),
            chain: ChainHash::start(&agent),
        };
        for (n_bytes, is_known) in [
            (LONGEST_NAME, true),
            (LONGEST_NAME + 1, false),
            (1 << 20, false),
        ] {
            let id = "i".repeat(n_bytes);
            replies.put(&agent, id.clone(), replied.clone());
            assert_eq!(replies.get(&agent, &id).is_some(), is_known, "{n_bytes}");
        }
    }
}
