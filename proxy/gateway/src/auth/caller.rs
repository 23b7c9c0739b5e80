//! Who calls, and with which keys.

use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName, header};
use metaclaw_chat::AgentId;
use metaclaw_dialects::json;

use super::{names::AgentNames, stored};

/// Headers in which a caller may send a key. If keys are configured here, none of them is sent upstream.
pub(crate) const KEY_HEADERS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// Any agent, because no key is needed. The number of agents has a limit.
    Anyone(AgentNames),
    /// Any agent, with the owner's key.
    Any,
    /// These agents. The first one is the default.
    Of(Arc<[AgentId]>),
}

/// The name of the key in `proxy.keys` that a caller of some agents showed.
#[derive(Debug, Clone)]
pub(crate) struct KeyName(pub(crate) String);

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("no key was given: send authorization: Bearer KEY, or x-api-key: KEY")]
    NoKey,
    #[error("this key is not known here; the keys are proxy.api_key and proxy.keys")]
    WrongKey,
    #[error("this call needs the admin token of run.json, as authorization: Bearer TOKEN")]
    NotAdmin,
    #[error("/metrics tells of all agents: show proxy.api_key, this key is that of some")]
    NotAll,
    #[error(
        "{field} names something that is stored in the account at the provider, which only the owner's key (proxy.api_key) may use: send its content instead"
    )]
    Stored { field: String },
    #[error(
        "previous response with id {id:?} not found: this key continues only replies that its own agent got through this proxy, and the key of a rollout only those of the rollout; send the conversation itself as input"
    )]
    ForeignReply { id: String },
}

// === impl Caller ===

impl Caller {
    /// Returns the caller that [`AuthLayer`] accepted.
    pub(crate) fn from_extensions(extensions: &Extensions) -> Result<Self, AuthError> {
        extensions.get().cloned().ok_or(AuthError::NoKey)
    }

    pub(crate) fn may_be(&self, agent: &AgentId) -> bool {
        match self {
            Self::Anyone(_) | Self::Any => true,
            Self::Of(agents) => agents.contains(agent),
        }
    }

    /// Refuses a body that names something stored in the account at the provider, unless the caller is the owner. The
    /// top-level field `except` is not checked.
    pub(crate) fn refuse_stored(&self, body: &[u8], except: &str) -> Result<(), AuthError> {
        if !matches!(self, Self::Of(_)) {
            return Ok(());
        }
        let found = match json::value(body) {
            Some(body) => stored::named_in(&body, except),
            None => Some(
                "a body with a number beyond f64, or nested deeper than 127 levels,".to_owned(),
            ),
        };
        found.map_or(Ok(()), |field| Err(AuthError::Stored { field }))
    }

    pub(crate) fn counted(&self, agent: AgentId) -> AgentId {
        match self {
            Self::Anyone(names) => names.counted(agent),
            Self::Any | Self::Of(_) => agent,
        }
    }
}

/// Returns the keys that a caller sends in any header that clients of chat APIs use. Some clients fill two headers, one
/// from their settings and one from their environment, and only one of the keys is ours.
pub(crate) fn shown_keys(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    KEY_HEADERS.into_iter().flat_map(|name| {
        let is_bearer = name == header::AUTHORIZATION;
        headers.get_all(name).iter().filter_map(move |value| {
            let value = value.to_str().ok()?.trim();
            if !is_bearer {
                return Some(value);
            }
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        })
    })
}
