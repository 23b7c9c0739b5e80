//! What upstreams attached to the replies of each session: it is put back where a client lost it, and taken out where
//! another upstream is asked.
//!
//! It is read from the log, so that it is there after a restart; of a session that is known only what came since is read,
//! one record as a rule. What is not in the log (a conversation off the record, one that was forgotten) is not mended.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use lru::LruCache;
use metaclaw_chat::{AgentId, SessionId, TurnId};
use metaclaw_dialects::{
    Api,
    mend::{self, Demands, Mended, PastReply},
};
use metaclaw_turns::Replied;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{lock::lock, past_replies::PastReplies};

/// Sessions that are kept; of another the log is read again.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// Replies of one session that are kept, by the length of their texts: the newest.
const MAX_BYTES: usize = 4 << 20;
/// How long the reply that a request goes on from may take to its place in the log.
const WRITTEN_WITHIN: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Calls of a session whose ids are remembered, to know whether that reply is there.
const CALLS: usize = 64;

/// What was attached, session by session.
pub(crate) struct Histories {
    past: Arc<dyn PastReplies>,
    known: Mutex<LruCache<(AgentId, SessionId), History>>,
}

/// The replies of one session that have anything attached, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    replies: VecDeque<Arc<Replied>>,
    n_bytes: usize,
    newest: Option<TurnId>,
    /// The ids of the last calls, with anything attached or not.
    calls: VecDeque<String>,
}

/// A session's history on its way to one upstream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mending<'a> {
    pub history: &'a History,
    /// The upstream's name.
    pub upstream: &'a str,
    pub demands: Demands,
}

// === impl Histories ===

impl Histories {
    pub(crate) fn new(past: Arc<dyn PastReplies>) -> Self {
        Self {
            past,
            known: Mutex::new(LruCache::new(SESSIONS)),
        }
    }

    /// What was attached to a session's replies. `last_call` tells the last call of the request: the reply that made it
    /// may still be on its way to the log, which is waited for where this session has had anything attached.
    pub(crate) async fn of(
        &self,
        agent: &AgentId,
        session: &SessionId,
        last_call: &(dyn Fn() -> Option<String> + Sync),
    ) -> History {
        let key = (agent.clone(), session.clone());
        let mut history = lock(&self.known).get(&key).cloned().unwrap_or_default();
        let until = Instant::now() + WRITTEN_WITHIN;
        loop {
            match self.past.replies(agent, session, history.newest).await {
                Ok(replies) => replies.into_iter().for_each(|reply| history.add(reply)),
                Err(error) => {
                    tracing::warn!(%error, "what upstreams attached to replies cannot be read from the log");
                    return history;
                }
            }
            let is_there = || last_call().is_none_or(|id| history.has_call(&id));
            if history.replies.is_empty() || is_there() || Instant::now() >= until {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        lock(&self.known).put(key, history.clone());
        history
    }
}

// === impl History ===

impl History {
    fn add(&mut self, reply: Replied) {
        self.newest = self.newest.max(Some(reply.id));
        for call in reply.reply.tool_calls() {
            if !self.has_call(&call.id) {
                self.calls.push_back(call.id);
            }
        }
        while self.calls.len() > CALLS {
            self.calls.pop_front();
        }
        // Another try took its place.
        if let Some(at) = self.replies.iter().position(|it| it.id == reply.id) {
            let before = self.replies.remove(at);
            self.n_bytes -= before.map_or(0, |it| size(&it));
        }
        if !mend::has_own_fields(&reply.reply) {
            return;
        }
        self.n_bytes += size(&reply);
        self.replies.push_back(Arc::new(reply));
        while self.n_bytes > MAX_BYTES
            && let Some(oldest) = self.replies.pop_front()
        {
            self.n_bytes -= size(&oldest);
        }
    }

    fn has_call(&self, id: &str) -> bool {
        self.calls.iter().any(|call| call == id)
    }

    /// Whether anything was attached to a reply of this session.
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }
}

/// The length of a reply as JSON, near enough.
fn size(reply: &Replied) -> usize {
    let fields = reply.reply.as_map().values();
    fields
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string().len(), str::len)
        })
        .sum()
}

// === impl Mending ===

impl Mending<'_> {
    /// Whether there may be anything to mend.
    pub(crate) fn is_needed(&self) -> bool {
        !self.history.is_empty() || self.demands != Demands::default()
    }

    /// Mends a request in the API that goes to the upstream, or that is translated to it.
    pub(crate) fn apply(&self, way: (Api, Api), request: &mut Value) -> Mended {
        let past = self.history.replies.iter().map(|it| PastReply {
            is_own: it.upstream == self.upstream,
            is_masked: it.masked,
            reply: &it.reply,
        });
        let past: Vec<PastReply<'_>> = past.collect();
        mend::mend(way, request, &past, self.demands)
    }
}
