//! Why the sender is unclear, or not allowed.

use metaclaw_chat::{AgentId, NameError};

/// Why a request has no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("X-Agent-Id: this key may not speak for agent {:?}", agent.as_str())]
    ForeignAgent { agent: AgentId },
    #[error("X-Agent-Id: _shared stands for all agents and is none: choose another name")]
    SharedAgent,
    #[error(
        "this conversation is agent {agent}'s by a line in the user's message alone, and {agent} is answered by \
         other upstreams: name the agent in the header X-Agent-Id, by a key of its own, or in the system text"
    )]
    ByTextAlone { agent: AgentId },
    #[error("{field}: {source}")]
    Name {
        field: &'static str,
        source: NameError,
    },
    #[error("X-MetaClaw-Learn: {given:?} is not allowed: yes or no")]
    Learn { given: String },
    #[error("{field}: a header that is no UTF-8 text")]
    HeaderText { field: &'static str },
}

// === impl IdentityError ===

impl IdentityError {
    /// Returns a code for programs if the caller may not be the one that it names, and `None` if the name is malformed.
    pub(crate) fn code(&self) -> Option<&'static str> {
        match self {
            Self::ForeignAgent { .. } => Some("foreign_agent"),
            Self::ByTextAlone { .. } => Some("agent_by_text_alone"),
            Self::SharedAgent
            | Self::Name { .. }
            | Self::Learn { .. }
            | Self::HeaderText { .. } => None,
        }
    }

    /// Returns the header at fault.
    pub(crate) fn param(&self) -> &'static str {
        match self {
            Self::ForeignAgent { .. } | Self::SharedAgent | Self::ByTextAlone { .. } => {
                "X-Agent-Id"
            }
            Self::Learn { .. } => "X-MetaClaw-Learn",
            Self::Name { field, .. } | Self::HeaderText { field } => field,
        }
    }
}
