//! Checks of paths and methods, and the routes in spellings that other servers accept.

use http::{Method, Request, uri::PathAndQuery};
use metaclaw_dialects::Api;
use percent_encoding::percent_decode_str;

/// The admin route of the original, which scripts still use.
pub(crate) const TRAIN_STEP: &str = "/v1/admin/train_step";
pub(crate) const FEEDBACK: &str = "/v1/feedback";
pub(crate) const ROLLOUTS: &str = "/v1/rollouts";
pub(crate) const COUNT_TOKENS: &str = "/v1/messages/count_tokens";
pub(crate) const MEMORY: &str = "/v1/memory";
pub(crate) const MODELS: &str = "/v1/models";

const EXACT: [&str; 7] = [
    Api::Chat.path(),
    Api::Messages.path(),
    Api::Responses.path(),
    COUNT_TOKENS,
    MODELS,
    FEEDBACK,
    TRAIN_STEP,
];
/// How often a path is decoded. A server behind the upstream may decode it again.
const DECODINGS: usize = 3;

/// What the key of a rollout opens besides chats, which are POST requests of [`Api::of_path`].
const FOR_ROLLOUTS: &[(&str, &str)] = &[("POST", COUNT_TOKENS), ("GET", MODELS)];
/// The same for a key of some agents: routes too that take a text, answer it, and keep nothing at the provider.
const FOR_AGENTS: &[(&str, &str)] = &[
    ("POST", COUNT_TOKENS),
    ("GET", MODELS),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/moderations"),
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum RouteError {
    #[error(
        "{method} {path} is not served here: chats are POST /v1/chat/completions, and rollouts POST /v1/rollouts"
    )]
    NotFound { method: String, path: String },
    #[error("WebSockets are not served here: send what would go through {path} as HTTP requests")]
    WebSocket { path: String },
    #[error(
        "{method} {path} is for the owner's key (proxy.api_key) alone, because it may reach what is stored in the account at the provider. This key opens chats{opened}"
    )]
    OwnerOnly {
        method: String,
        path: String,
        opened: String,
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

pub(crate) fn is_at(path: &str, route: &str) -> bool {
    let below = path.strip_prefix(route);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the route of ours that a path means in another spelling: with `//`, a slash at the end, `/v1` twice, encoded
/// or large letters. Returns `None` for a path that is such a route as it is, or means none.
pub(crate) fn respelled(path: &str) -> Option<String> {
    if EXACT.contains(&path) || [ROLLOUTS, MEMORY].iter().any(|own| is_at(path, own)) {
        return None;
    }
    let segments = segments(path);
    let is_v1 = |segment: &&String| segment.eq_ignore_ascii_case("v1");
    let n_v1 = segments.iter().take_while(is_v1).count();
    let plain = format!("/v1/{}", segments[n_v1..].join("/"));
    let route = plain.to_ascii_lowercase();
    let below = [ROLLOUTS, MEMORY]
        .into_iter()
        .find(|own| is_at(&route, own));
    // What is below may be an id.
    let below = below.map(|own| format!("{own}{}", &plain[own.len()..]));
    let exact = EXACT.contains(&&*route).then_some(route);
    exact.or(below).filter(|_| n_v1 > 0)
}

/// Returns whether some server may read a path, in any spelling, as the path of a conversation. The roots of other APIs
/// count even below `/v1`. OpenAI's stored completions and the messages of its threads do not count, because they are
/// not sent to a model.
pub(crate) fn looks_like_a_chat(path: &str) -> bool {
    let all = segments(&path.to_ascii_lowercase());
    let below_v1 = all.iter().skip_while(|segment| *segment == "v1");
    let segments: Vec<&str> = below_v1.map(String::as_str).collect();
    let version = segments.first().and_then(|first| first.strip_prefix('v'));
    let is_version = version.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let chat = segments.iter().position(|segment| *segment == "chat");
    let after_chat = chat.map(|at| &segments[at + 1..]);
    if let Some(["completions", id, ..]) = after_chat {
        return !id.starts_with("chatcmpl");
    }
    match segments.as_slice() {
        _ if is_version || chat.is_some() => true,
        ["api", ..]
        | [.., "responses" | "chatcompletion_v2"]
        | [.., "messages", "count_tokens"]
        | [.., "agents", "completions"] => true,
        [before @ .., "messages"] => !before.contains(&"threads"),
        // These are the paths of Gemini and Bedrock.
        [.., last] => last.ends_with("generatecontent") || last.starts_with("converse"),
        [] => false,
    }
}

/// Returns the segments of a path as the most lenient server reads them: decoded, without empty ones, `.`, parameters
/// and what follows `?` or `#`.
fn segments(path: &str) -> Vec<String> {
    let decode = |path: String, _| percent_decode_str(&path).decode_utf8_lossy().into_owned();
    let path = (0..DECODINGS).fold(path.to_owned(), decode);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let segments = path
        .split(['/', '\\'])
        .filter_map(|segment| segment.split(';').next());
    let segments =
        segments.map(|part| part.trim_matches(|c: char| c.is_whitespace() || c.is_control()));
    let segments = segments.filter(|segment| !matches!(*segment, "" | "."));
    segments.map(str::to_owned).collect()
}

/// Refuses what only the owner's key opens, except for chats and the proxy's own routes. The paths are compared as they
/// are sent upstream, so no other spelling of a route is allowed.
pub(crate) fn refuse_owners_routes<B>(
    request: &Request<B>,
    is_in_rollout: bool,
) -> Result<(), RouteError> {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let opened = if is_in_rollout {
        FOR_ROLLOUTS
    } else {
        FOR_AGENTS
    };
    if opened.contains(&(method, path)) {
        return Ok(());
    }
    let opened = opened
        .iter()
        .map(|(method, path)| format!(", {method} {path}"));
    Err(RouteError::OwnerOnly {
        method: method.to_owned(),
        path: path.to_owned(),
        opened: opened.collect(),
    })
}

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
