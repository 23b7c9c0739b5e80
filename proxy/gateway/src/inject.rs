//! What a session was given at its first instruction, kept byte for byte.
//!
//! A changed system text costs the provider's prompt cache and ours. So the lessons of a session are
//! chosen once and stay, and so does the adapter; after a pause of `serving.pin_idle`, when caches
//! are cold anyway, both are chosen anew.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use metaclaw_chat::{AgentId, Message, Role, SessionId};
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

/// What a request takes along.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub lessons: Arc<Lessons>,
    pub lease: Lease,
}

/// What each session was given.
#[derive(Debug)]
pub(crate) struct Sessions {
    library: Library,
    serving: Arc<Serving>,
    pin_idle: Duration,
    metrics: Arc<Metrics>,
    held: Mutex<Recent<(AgentId, SessionId), Session>>,
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
        }
    }

    /// What a request takes along: what its session was given, else what is best now.
    ///
    /// An errand of the client gets no lessons, unless it goes on with a conversation that has some:
    /// there they stay, as the cache lives by them.
    pub(crate) fn given(&self, who: &Identity, messages: &[Message]) -> Given {
        let key = (who.agent.clone(), who.session.clone());
        let goes_on = messages
            .iter()
            .any(|message| message.role() == Role::Assistant);
        let is_errand = who.kind == TurnKind::Side;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = held.get_mut(&key).filter(|_| !is_errand || goes_on) {
            if !session.is_idle(self.pin_idle) {
                session.last_used = Instant::now();
                return session.given.clone();
            }
            self.metrics.cache_breaks.inc();
        }
        let lessons = if is_errand {
            Lessons::default()
        } else {
            self.library.lessons(&who.agent, &query(messages))
        };
        let given = Given {
            lessons: Arc::new(lessons),
            lease: self.serving.lease(&who.agent),
        };
        if !is_errand {
            let session = Session {
                given: given.clone(),
                last_used: Instant::now(),
            };
            held.insert(key, session);
        }
        given
    }

    /// A reply of the session has ended: its pause begins now, unless it was its last.
    pub(crate) fn touch(&self, who: &Identity) {
        let key = (who.agent.clone(), who.session.clone());
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if who.is_last {
            held.remove(&key);
        } else if let Some(session) = held.get_mut(&key) {
            session.last_used = Instant::now();
        }
    }

    /// Lets go of what silent sessions were given, so that their adapters can be unloaded.
    pub(crate) fn sweep(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|session| !session.is_idle(self.pin_idle));
    }
}

// === impl Session ===

impl Session {
    /// Whether it paused for `pin_idle`. A reply under way holds what it was given, so a session with
    /// one is not idle however long the reply takes.
    fn is_idle(&self, pin_idle: Duration) -> bool {
        let is_answered = Arc::strong_count(&self.given.lessons) == 1;
        is_answered && self.last_used.elapsed() >= pin_idle
    }
}

/// What skills are looked up by: the last thing that the owner said.
fn query(messages: &[Message]) -> String {
    let last = messages.iter().rev().find(|message| message.is_owners());
    last.map_or_else(String::new, |message| message.text().into_owned())
}
