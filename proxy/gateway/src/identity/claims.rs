//! What a request says about itself in headers and fields, and why it may be refused for it.

use http::{HeaderMap, HeaderName};
use metaclaw_chat::{AgentId, NameError, SessionId, excerpt};
use metaclaw_dialects::request::ChatRequest;
use metaclaw_skills::MemoryScope;
use serde_json::Value;

use crate::auth::caller::Caller;

/// Headers that are only for this proxy. No upstream sees them. `x-session-id` is not among them, because opencode
/// sends it to each provider, and some keep a conversation together by it.
pub(crate) const OWN_HEADERS: [HeaderName; 6] = [
    HeaderName::from_static("x-turn-type"),
    HeaderName::from_static("x-session-done"),
    HeaderName::from_static("x-memory-scope"),
    HeaderName::from_static("x-workspace-id"),
    HeaderName::from_static("x-agent-id"),
    HeaderName::from_static("x-metaclaw-learn"),
];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Claims<'a> {
    pub headers: &'a HeaderMap,
    pub chat: &'a ChatRequest,
    pub caller: &'a Caller,
}

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

// === impl Claims ===

impl Claims<'_> {
    pub(super) fn own_session(&self) -> Result<Option<SessionId>, IdentityError> {
        let name = self.own("x-session-id", "session_id")?;
        let session = name.map(|name| name.parse()).transpose();
        let field = "X-Session-Id";
        session.map_err(|source| IdentityError::Name { field, source })
    }

    /// Returns whether it claims to be the owner's or a side turn, or `None` if it says neither.
    pub(super) fn is_main(&self) -> Result<Option<bool>, IdentityError> {
        let kind = self.own("x-turn-type", "turn_type")?;
        Ok(kind.map(|kind| kind.trim().eq_ignore_ascii_case("main")))
    }

    pub(super) fn is_last(&self) -> Result<bool, IdentityError> {
        let given = self.own("x-session-done", "session_done")?;
        let given = given.map(|given| given.trim().to_ascii_lowercase());
        Ok(given.is_some_and(|given| ["1", "true", "yes", "on"].contains(&given.as_str())))
    }

    /// Returns whether it says that nothing of it may be kept.
    ///
    /// # Errors
    /// A value that may be meant as "no" must not count as "yes", so any other value is refused.
    pub(crate) fn says_no(&self) -> Result<bool, IdentityError> {
        let given = text(self.headers, "x-metaclaw-learn")?;
        match given.map(str::to_ascii_lowercase).as_deref() {
            None | Some("yes" | "true" | "on" | "1") => Ok(false),
            Some("no" | "false" | "off" | "0") => Ok(true),
            Some(other) => Err(IdentityError::Learn {
                given: excerpt(other).to_string(),
            }),
        }
    }

    pub(super) fn names_agent(&self) -> bool {
        text(self.headers, "x-agent-id").is_ok_and(|name| name.is_some())
    }

    pub(crate) fn memory_scope(&self) -> Result<Option<MemoryScope>, IdentityError> {
        let scope = self.own("x-memory-scope", "memory_scope")?;
        let user = self.own("x-user-id", "user_id")?;
        let workspace = self.own("x-workspace-id", "workspace_id")?;
        Ok(MemoryScope::of_request(
            scope.as_deref(),
            user.as_deref(),
            workspace.as_deref(),
        ))
    }

    fn own(&self, header: &'static str, field: &str) -> Result<Option<String>, IdentityError> {
        if let Some(text) = text(self.headers, header)? {
            return Ok(Some(text.to_owned()));
        }
        Ok(match self.chat.field(field) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
            Some(_) | None => None,
        })
    }
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

/// Returns the agent of a request without a conversation: the caller's agents decide, then our header.
pub(crate) fn agent_of(headers: &HeaderMap, caller: &Caller) -> Result<AgentId, IdentityError> {
    let agent = named_agent(headers, caller)?;
    Ok(agent.unwrap_or_else(AgentId::default_agent))
}

/// Returns this agent, or `None` for a caller that may speak for all and names none.
pub(crate) fn named_agent(
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Option<AgentId>, IdentityError> {
    let named = text(headers, "x-agent-id")?.map(str::parse).transpose();
    let field = "X-Agent-Id";
    let named: Option<AgentId> = named.map_err(|source| IdentityError::Name { field, source })?;
    match (named, caller) {
        (Some(agent), _) => admitted(agent, caller).map(Some),
        (None, Caller::Of(agents)) => Ok(agents.first().cloned()),
        (None, Caller::Any | Caller::Anyone(_)) => Ok(None),
    }
}

pub(crate) fn admitted(agent: AgentId, caller: &Caller) -> Result<AgentId, IdentityError> {
    may_speak_for(&agent, caller)?;
    Ok(caller.counted(agent))
}

pub(crate) fn may_speak_for(agent: &AgentId, caller: &Caller) -> Result<(), IdentityError> {
    // Its wishes would apply to every agent.
    if agent.is_shared() {
        return Err(IdentityError::SharedAgent);
    }
    if !caller.may_be(agent) {
        let agent = agent.clone();
        return Err(IdentityError::ForeignAgent { agent });
    }
    Ok(())
}

/// Returns a header as text, or `None` for an empty one.
pub(super) fn text<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, IdentityError> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    // Headers are bytes, and names in other scripts come as UTF-8.
    let text = std::str::from_utf8(value.as_bytes())
        .map_err(|_| IdentityError::HeaderText { field: name })?
        .trim();
    Ok(Some(text).filter(|text| !text.is_empty()))
}
