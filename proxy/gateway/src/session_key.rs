//! The key of a session. A session's name is unique only within its agent.

use metaclaw_chat::{AgentId, SessionId};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub agent: AgentId,
    pub session: SessionId,
}

// === impl SessionKey ===

impl SessionKey {
    pub(crate) fn new(agent: &AgentId, session: &SessionId) -> Self {
        Self {
            agent: agent.clone(),
            session: session.clone(),
        }
    }
}
