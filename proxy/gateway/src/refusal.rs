//! Answers that the gateway gives itself: what was wrong, and which status that is.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use metaclaw_chat::{Size, Span};
use metaclaw_dialects::{Dialect, ErrorBody, request::RequestError};

use crate::{
    identity::IdentityError,
    relay::{Body, full},
    upstream::UpstreamError,
};

/// Why the gateway answers itself instead of an upstream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no key was given: send authorization: Bearer KEY, or x-api-key: KEY")]
    NoKey,
    #[error("this key is not known here; the keys are proxy.api_key and proxy.keys")]
    WrongKey,
    #[error("this call needs the admin token of run.json, as authorization: Bearer TOKEN")]
    NotAdmin,
    #[error("/metrics tells of all agents: show proxy.api_key, this key is that of some")]
    NotAll,
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the request body is larger than proxy.max_body, {limit}{}", size_given(*given))]
    TooLarge { limit: Size, given: Option<u64> },
    #[error("the request body ended early")]
    BodyCut,
    #[error("nothing of the request body came for {after}")]
    BodyStalled { after: Span },
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{limit} requests are under way already, the most that proxy.max_streams allows")]
    Busy { limit: usize },
    #[error(
        "no room for this request body just now: all together take at most proxy.body_memory, {limit}"
    )]
    NoRoom { limit: Size },
    #[error(transparent)]
    Upstream(UpstreamError),
    #[error(
        "web pages of {origin:?} may not speak to this proxy: add it to proxy.allow_origins if they should"
    )]
    Origin { origin: String },
    #[error(
        "this proxy was asked for as {host:?}, which may be any site's name, and no key is set: ask for it as 127.0.0.1, set proxy.api_key, or add http://{host} to proxy.allow_origins"
    )]
    Host { host: String },
    #[error("{method} {path} is not served here: chats are POST /v1/chat/completions")]
    NotFound { method: String, path: String },
    #[error("WebSockets are not served here: send what would go through {path} as HTTP requests")]
    WebSocket { path: String },
    #[error("{path} takes {allowed}, not {method}")]
    Method {
        path: String,
        method: String,
        allowed: &'static str,
    },
    #[error("{message}")]
    Service { status: StatusCode, message: String },
}

fn size_given(n_bytes: Option<u64>) -> String {
    n_bytes.map_or_else(String::new, |n| format!(": it has {n} bytes"))
}

// === impl Refusal ===

impl Refusal {
    /// The one place where a refusal becomes a status.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoKey | Self::WrongKey | Self::NotAdmin => StatusCode::UNAUTHORIZED,
            Self::Origin { .. } | Self::Host { .. } | Self::NotAll => StatusCode::FORBIDDEN,
            Self::Identity(error) if error.is_forbidden() => StatusCode::FORBIDDEN,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Identity(_) | Self::BodyCut | Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Busy { .. } | Self::NoRoom { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Upstream(error) => of_upstream(error).0,
            Self::BodyStalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            // The answer upon which Codex goes on over HTTP at once; upon others it tries again first.
            Self::WebSocket { .. } => StatusCode::UPGRADE_REQUIRED,
            Self::Service { status, .. } => *status,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Self::NoKey | Self::WrongKey | Self::NotAdmin => Some("invalid_api_key"),
            Self::Identity(error) => error.code(),
            Self::TooLarge { .. } => Some("request_too_large"),
            Self::Busy { .. } => Some("too_many_streams"),
            Self::NoRoom { .. } => Some("too_many_bytes"),
            Self::Upstream(error) => of_upstream(error).1,
            Self::Origin { .. } => Some("foreign_origin"),
            Self::Host { .. } => Some("foreign_host"),
            Self::WebSocket { .. } => Some("no_websockets"),
            Self::BodyCut
            | Self::BodyStalled { .. }
            | Self::Request(_)
            | Self::NotFound { .. }
            | Self::Method { .. }
            | Self::NotAll
            | Self::Service { .. } => None,
        }
    }

    fn param(&self) -> Option<String> {
        match self {
            Self::Upstream(UpstreamError::TextOnly) => Some("messages".to_owned()),
            Self::Upstream(UpstreamError::Untranslatable { field, .. }) => field.clone(),
            Self::Request(error) => error.param(),
            Self::Identity(error) => Some(error.param().to_owned()),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<HeaderValue> {
        match self {
            Self::Busy { .. } | Self::NoRoom { .. } => Some(HeaderValue::from_static("1")),
            Self::Upstream(UpstreamError::PolicyDown) => Some(HeaderValue::from_static("5")),
            _ => None,
        }
    }

    /// The answer, worded as the caller's dialect words errors.
    pub(crate) fn response(&self, dialect: Dialect) -> Response<Body> {
        let status = self.status();
        let body = dialect.error(&ErrorBody {
            status: status.as_u16(),
            message: &self.to_string(),
            kind: match status {
                StatusCode::UNAUTHORIZED => "authentication_error",
                StatusCode::FORBIDDEN => "permission_error",
                status if status.is_server_error() => "server_error",
                _ => "invalid_request_error",
            },
            param: self.param().as_deref(),
            code: self.code(),
        });
        let mut response = json_response(status, &body);
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if let Self::Method { allowed, .. } = self {
            let allowed = HeaderValue::from_static(allowed);
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        if matches!(self, Self::WebSocket { .. }) {
            // RFC 9110 15.5.22: a 426 must say which protocol there is instead.
            let instead = HeaderValue::from_static("HTTP/1.1");
            response.headers_mut().insert(header::UPGRADE, instead);
        }
        response
    }
}

/// The status and the code of an upstream's failure.
fn of_upstream(error: &UpstreamError) -> (StatusCode, Option<&'static str>) {
    use UpstreamError as E;
    let (status, code) = match error {
        E::PolicyDown => (StatusCode::SERVICE_UNAVAILABLE, "policy_unavailable"),
        E::NoUpstream => (StatusCode::SERVICE_UNAVAILABLE, "no_upstream"),
        E::TextOnly => (StatusCode::BAD_REQUEST, "text_only_model"),
        E::Untranslatable { .. } => (StatusCode::BAD_REQUEST, "not_translatable"),
        E::NotSpoken { .. } => (StatusCode::NOT_FOUND, "api_not_spoken"),
        E::NotHttp { .. } | E::Unreadable { .. } => {
            (StatusCode::BAD_GATEWAY, "upstream_unreadable")
        }
        E::Unreachable { .. } | E::NoReply { .. } => {
            (StatusCode::BAD_GATEWAY, "upstream_unreachable")
        }
        E::TooSlow { .. } => (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout"),
        E::NotFound { .. } => return (StatusCode::NOT_FOUND, None),
        E::Upload(_) => return (StatusCode::BAD_REQUEST, None),
    };
    (status, Some(code))
}

impl From<UpstreamError> for Refusal {
    fn from(error: UpstreamError) -> Self {
        match error {
            // What the caller's body broke off with is ours, or that of its connection.
            UpstreamError::Upload(why) => *why.downcast().unwrap_or(Box::new(Self::BodyCut)),
            error => Self::Upstream(error),
        }
    }
}

/// A JSON answer of our own.
pub(crate) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
