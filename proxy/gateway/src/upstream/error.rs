//! Errors of upstreams without a usable answer.

use std::error::Error;

use metaclaw_chat::Span;

use super::{
    client::{SendError, is_not_http, sources},
    tls,
};
use crate::{body::BoxError, failure::Failure, route::RouteError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("no upstream is configured: set llm.api_base, or a policy model")]
    NoUpstream,
    #[error("the policy model is not being served right now; it is being (re)started, try again")]
    PolicyDown,
    #[error(
        "this conversation holds an image or a file, and the policy model reads text alone: leave it out, or set llm.api_base to a model that takes it"
    )]
    TextOnly,
    #[error("upstream {name} ({host}) cannot be reached: {reason}")]
    Unreachable {
        name: String,
        host: String,
        reason: String,
    },
    #[error("upstream {name} ({host}) sent no reply: {reason}")]
    NoReply {
        name: String,
        host: String,
        reason: String,
    },
    #[error("upstream {name} ({host}) sent something that is not HTTP: {reason}")]
    NotHttp {
        name: String,
        host: String,
        reason: String,
    },
    #[error("upstream {name} ({host}) sent no reply within {after}")]
    TooSlow {
        name: String,
        host: String,
        after: Span,
    },
    #[error("upstream {name} cannot be asked this, as it speaks another API: {reason}")]
    Untranslatable {
        name: String,
        field: Option<String>,
        reason: String,
    },
    #[error(
        "upstream {name} does not speak this API ({path}), and it cannot be put in the words of those that it speaks: let the agent speak one of them, or, if the upstream speaks more, say so in upstreams.{name}.speaks"
    )]
    NotSpoken { name: String, path: &'static str },
    #[error(
        "previous response with id {id:?} not found: upstream {name} keeps none, and the log has none of this agent's by that id; send the conversation itself as input"
    )]
    NoPreviousResponse { name: String, id: String },
    #[error("upstream {name} sent a reply that cannot be put in other words: {reason}")]
    Unreadable { name: String, reason: String },
    #[error(
        "upstream {name} redirects this request to {to:?} ({status}), which is not followed: set the upstream's address to it if it is yours"
    )]
    Redirected {
        name: String,
        status: u16,
        to: String,
    },
    #[error("upstream {name} is not asked, as its request cannot be signed: {reason}")]
    Unsigned { name: String, reason: String },
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The caller's own body broke off.
    #[error(transparent)]
    Upload(BoxError),
}

// === impl UpstreamError ===

impl UpstreamError {
    /// Makes the error for no available upstream: our own policy model is unreachable, or nothing is configured.
    pub(crate) fn nobody(has_policy: bool) -> Self {
        if has_policy {
            Self::PolicyDown
        } else {
            Self::NoUpstream
        }
    }

    pub(super) fn from_send_error(error: SendError, name: &str, host: &str) -> Self {
        let (name, host) = (name.to_owned(), host.to_owned());
        let error = match error {
            SendError::Upload(why) => return Self::Upload(why),
            SendError::TooSlow(after) => return Self::TooSlow { name, host, after },
            SendError::Redirected(status, to) => return Self::Redirected { name, status, to },
            SendError::Failed(error) => error,
        };
        let reason = innermost(&error);
        if is_not_http(&error) {
            Self::NotHttp { name, host, reason }
        } else if error.is_connect() {
            Self::Unreachable { name, host, reason }
        } else {
            Self::NoReply { name, host, reason }
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Self::TooSlow { .. } => Some(Failure::Timeout),
            Self::Unreachable { .. }
            | Self::NoReply { .. }
            | Self::NotHttp { .. }
            | Self::Redirected { .. }
            | Self::PolicyDown => Some(Failure::Unreachable),
            Self::Unsigned { .. } => Some(Failure::Auth),
            Self::NoUpstream
            | Self::TextOnly
            | Self::Untranslatable { .. }
            | Self::NotSpoken { .. }
            | Self::NoPreviousResponse { .. }
            | Self::Unreadable { .. }
            | Self::Route(_)
            | Self::Upload(_) => None,
        }
    }
}

/// Returns the innermost of nested errors, which says what happened, with advice if it says little.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let reason = sources(error).last();
    let mut reason = reason.map_or_else(String::new, ToString::to_string);
    if let Some(advice) = tls::advice(&reason) {
        reason.push_str(advice);
    }
    reason
}
