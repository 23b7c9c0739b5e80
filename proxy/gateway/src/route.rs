//! Checks of paths and methods.

use http::{Method, Request, uri::PathAndQuery};

/// The admin route of the original, which scripts still use.
pub(crate) const TRAIN_STEP: &str = "/v1/admin/train_step";
pub(crate) const FEEDBACK: &str = "/v1/feedback";
/// Rollouts are opened here, and looked at below it.
pub(crate) const ROLLOUTS: &str = "/v1/rollouts";
/// Anthropic's route for counting tokens.
pub(crate) const COUNT_TOKENS: &str = "/v1/messages/count_tokens";
/// The memory API, as in the original.
pub(crate) const MEMORY: &str = "/v1/memory";

/// What each key of the proxy opens besides chats, which are POST requests of [`Api::of_path`](metaclaw_dialects::Api).
const FOR_EVERY_KEY: [(&str, &str); 2] = [("GET", "/v1/models"), ("POST", COUNT_TOKENS)];
/// What a key of some agents opens besides: routes that take a text, answer it, and keep nothing at the provider.
const FOR_AGENTS: [&str; 3] = ["/v1/completions", "/v1/embeddings", "/v1/moderations"];

/// Nothing is served at this path, or with this method.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RouteError {
    #[error("{method} {path} is not served here: chats are POST /v1/chat/completions")]
    NotFound { method: String, path: String },
    #[error("WebSockets are not served here: send what would go through {path} as HTTP requests")]
    WebSocket { path: String },
    #[error(
        "{method} {path} is not served in a rollout: its key opens chats, POST /v1/messages/count_tokens and GET /v1/models"
    )]
    InRollout { method: String, path: String },
    #[error(
        "{method} {path} is for the owner's key (proxy.api_key) alone, because it may reach what is stored in the account at the provider. A key of some agents opens chats, POST /v1/messages/count_tokens, GET /v1/models, and POST to {}",
        FOR_AGENTS.join(", ")
    )]
    OwnerOnly { method: String, path: String },
    #[error("{path} takes {allowed}, not {method}")]
    Method {
        path: String,
        method: String,
        allowed: &'static str,
    },
}

// === impl RouteError ===

impl RouteError {
    pub(crate) fn not_found(method: &Method, path: &str) -> Self {
        let (method, path) = (method.to_string(), path.to_owned());
        Self::NotFound { method, path }
    }

    pub(crate) fn in_rollout(method: &Method, path: &str) -> Self {
        let (method, path) = (method.to_string(), path.to_owned());
        Self::InRollout { method, path }
    }

    pub(crate) fn owner_only(method: &Method, path: &str) -> Self {
        let (method, path) = (method.to_string(), path.to_owned());
        Self::OwnerOnly { method, path }
    }
}

/// Returns whether a path is that of rollouts.
pub(crate) fn is_rollouts(path: &str) -> bool {
    let below = path.strip_prefix(ROLLOUTS);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a path is that of the memory API.
pub(crate) fn is_memory(path: &str) -> bool {
    let below = path.strip_prefix(MEMORY);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether every key opens this, beside chats: also that of a rollout.
pub(crate) fn is_for_every_key(method: &Method, path: &str) -> bool {
    FOR_EVERY_KEY.contains(&(method.as_str(), path))
}

/// Returns whether a key of some agents opens this, beside chats and the proxy's own routes. The paths are compared as
/// they are sent upstream, so no other spelling of a route is allowed.
pub(crate) fn is_for_agents(method: &Method, path: &str) -> bool {
    is_for_every_key(method, path) || (*method == Method::POST && FOR_AGENTS.contains(&path))
}

/// Refuses every method except one.
pub(crate) fn allow<B>(request: &Request<B>, allowed: &'static str) -> Result<(), RouteError> {
    if request.method().as_str() == allowed {
        return Ok(());
    }
    Err(RouteError::Method {
        path: request.uri().path().to_owned(),
        method: request.method().to_string(),
        allowed,
    })
}

/// Returns the route below `/v1/`, because upstreams have no other.
pub(crate) fn below_v1<B>(request: &Request<B>) -> Result<PathAndQuery, RouteError> {
    let route = request.uri().path_and_query();
    let route = route.filter(|route| route.path().starts_with("/v1/"));
    let not_found = || RouteError::not_found(request.method(), request.uri().path());
    route.cloned().ok_or_else(not_found)
}
