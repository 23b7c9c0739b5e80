//! Finds the session of a reply, because the Responses API names the reply that a request continues.

use std::{num::NonZeroUsize, sync::Mutex};

use lru::LruCache;
use metaclaw_chat::{AgentId, ChainHash, SessionId};

use crate::{LONGEST_NAME, lock::lock};

/// The number of replies that are remembered. Ids of servers have 50 bytes, so each takes about 250.
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
        if id.len() <= LONGEST_NAME {
            lock(&self.known).put((agent.clone(), id), replied);
        }
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
