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
        "{method} {path} is for the owner's key (proxy.api_key) alone, because it may reach what is stored in the account at the provider. This key opens chats, POST /v1/messages/count_tokens, GET /v1/models{more}"
    )]
    OwnerOnly {
        method: String,
        path: String,
        more: String,
    },
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

/// Refuses what only the owner's key opens, except for chats and the proxy's own routes. The paths are compared as they
/// are sent upstream, so no other spelling of a route is allowed.
pub(crate) fn refuse_owners_routes<B>(
    request: &Request<B>,
    is_in_rollout: bool,
) -> Result<(), RouteError> {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let for_agents: &[&str] = if is_in_rollout { &[] } else { &FOR_AGENTS };
    if FOR_EVERY_KEY.contains(&(method, path)) || (method == "POST" && for_agents.contains(&path)) {
        return Ok(());
    }
    let more = for_agents.iter().map(|path| format!(", POST {path}"));
    Err(RouteError::OwnerOnly {
        method: method.to_owned(),
        path: path.to_owned(),
        more: more.collect(),
    })
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
