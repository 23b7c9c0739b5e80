//! Finds the session of a reply, because the Responses API names the reply that a request continues.

use std::{num::NonZeroUsize, sync::Mutex};

use lru::LruCache;
use metaclaw_chat::{AgentId, ChainHash, SessionId};

use crate::lock::lock;

/// The number of replies that are remembered, 250 bytes each.
const BOUND: NonZeroUsize = NonZeroUsize::new(20_000).unwrap();

/// The latest replies.
#[derive(Debug)]
pub(crate) struct RecentReplies {
    known: Mutex<LruCache<(AgentId, String), Replied>>,
}

/// A reply that a request may continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replied {
    pub session: SessionId,
    /// The hash of the conversation including the reply.
    pub chain: ChainHash,
}

// === impl RecentReplies ===

impl RecentReplies {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::new(LruCache::new(BOUND)),
        }
    }

    /// Returns the reply with this id, if it was this agent's.
    pub(crate) fn get(&self, agent: &AgentId, id: &str) -> Option<Replied> {
        lock(&self.known)
            .get(&(agent.clone(), id.to_owned()))
            .cloned()
    }

    pub(crate) fn put(&self, agent: &AgentId, id: String, replied: Replied) {
        lock(&self.known).put((agent.clone(), id), replied);
    }
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
}
