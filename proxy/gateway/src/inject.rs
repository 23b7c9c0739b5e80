//! What a session was given at its first instruction, kept byte for byte.
//!
//! A changed system text costs the provider's prompt cache and ours. So the lessons of a session are
//! chosen once and stay, and so does the adapter; after a pause of `serving.pin_idle`, when caches
//! are cold anyway, both are chosen anew.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metaclaw_chat::{AgentId, SessionId};
use metaclaw_dialects::request::{ChatRequest, MessageRef};
use metaclaw_skills::{Lessons, Library};
use metaclaw_turns::TurnKind;
use tokio::time::Instant;

use crate::{
    identity::Identity,
    metrics::Metrics,
    recent::Recent,
    serving::{Lease, Serving},
};

/// How many sessions are kept, about; one that falls out is as if it had paused.
const BOUND: usize = 4_096;
/// Agents whose last lessons are kept.
const AGENTS: usize = 64;

/// What a request takes along.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub lessons: Arc<Written>,
    pub lease: Lease,
    /// As many as there are requests under way, and one for the session.
    holders: Arc<()>,
}

/// Lessons, shared by all who were given the same.
#[derive(Debug)]
pub(crate) struct Written {
    pub lessons: Lessons,
}

/// What each session was given.
#[derive(Debug)]
pub(crate) struct Sessions {
    library: Library,
    serving: Arc<Serving>,
    pin_idle: Duration,
    metrics: Arc<Metrics>,
    held: Mutex<Recent<(AgentId, SessionId), Session>>,
    /// What each agent's last session was given: mostly the next one is given the same.
    last: Mutex<Recent<AgentId, Arc<Written>>>,
}

#[derive(Debug)]
struct Session {
    given: Given,
    last_used: Instant,
}

// === impl Sessions ===

impl Sessions {
    pub(crate) fn new(
        library: Library,
        serving: Arc<Serving>,
        pin_idle: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            library,
            serving,
            pin_idle,
            metrics,
            held: Mutex::new(Recent::new(BOUND)),
            last: Mutex::new(Recent::new(AGENTS)),
        }
    }

    /// What a request takes along: what its session was given, else what is best now.
    ///
    /// An errand of the client gets no lessons, unless it goes on with a conversation that has some:
    /// there they stay, as the cache lives by them.
    pub(crate) fn given(&self, who: &Identity, chat: &ChatRequest) -> Given {
        let is_errand = who.kind == TurnKind::Side;
        if (!is_errand || chat.has_reply())
            && let Some(given) = self.kept(who)
        {
            return given;
        }
        // Retrieval takes its time: nobody else waits for it.
        let lessons = if is_errand {
            Lessons::default()
        } else {
            let last = chat.last_owners();
            let query = last.as_ref().map_or(Cow::Borrowed(""), MessageRef::text);
            self.library.lessons(&who.agent, &query)
        };
        let given = Given {
            lessons: self.written(&who.agent, lessons),
            lease: self.serving.lease(&who.agent),
            holders: Arc::default(),
        };
        if is_errand {
            return given;
        }
        self.keep(who, given)
    }

    fn written(&self, agent: &AgentId, lessons: Lessons) -> Arc<Written> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = last.get_mut(agent).filter(|last| last.lessons == lessons);
        if let Some(same) = same {
            return Arc::clone(same);
        }
        let written = Arc::new(Written::from(lessons));
        last.insert(agent.clone(), Arc::clone(&written));
        written
    }

    /// What the session was given, unless it paused since.
    fn kept(&self, who: &Identity) -> Option<Given> {
        let mut held = self.lock();
        let session = held.get_mut(&key(who))?;
        if session.is_idle(self.pin_idle) {
            let stale = held.remove(&key(who));
            drop(held);
            // Last of all: it may be what kept an adapter loaded.
            drop(stale);
            self.metrics.cache_breaks.inc();
            return None;
        }
        session.last_used = Instant::now();
        Some(session.given.clone())
    }

    /// Keeps it for the session. Of two requests that begin one at once, both take along what the
    /// first was given.
    fn keep(&self, who: &Identity, given: Given) -> Given {
        let mut held = self.lock();
        if let Some(session) = held.get_mut(&key(who)) {
            return session.given.clone();
        }
        let session = Session {
            given: given.clone(),
            last_used: Instant::now(),
        };
        held.insert(key(who), session);
        given
    }

    fn lock(&self) -> MutexGuard<'_, Recent<(AgentId, SessionId), Session>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reply of the session has ended: its pause begins now, unless it was its last.
    pub(crate) fn touch(&self, who: &Identity) {
        let mut held = self.lock();
        if who.is_last {
            held.remove(&key(who));
        } else if let Some(session) = held.get_mut(&key(who)) {
            session.last_used = Instant::now();
        }
    }

    /// Lets go of what silent sessions were given, so that their adapters can be unloaded.
    pub(crate) fn sweep(&self) {
        let mut held = self.lock();
        held.retain(|session| !session.is_idle(self.pin_idle));
    }
}

// === impl Written ===

impl From<Lessons> for Written {
    fn from(lessons: Lessons) -> Self {
        Self { lessons }
    }
}

// === impl Session ===

impl Session {
    /// Whether it paused for `pin_idle`. A reply under way holds what it was given, so a session with
    /// one is not idle however long the reply takes.
    fn is_idle(&self, pin_idle: Duration) -> bool {
        let is_answered = Arc::strong_count(&self.given.holders) == 1;
        is_answered && self.last_used.elapsed() >= pin_idle
    }
}

fn key(who: &Identity) -> (AgentId, SessionId) {
    (who.agent.clone(), who.session.clone())
}
