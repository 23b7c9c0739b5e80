//! Converts errors to answers in the caller's API. This is the only place where an error gets a status.

use std::{convert::Infallible, io::ErrorKind, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, StatusCode as S, header};
use metaclaw_capture::Encoding;
use metaclaw_dialects::{Api, OwnError, request::RequestError};
use metaclaw_turns::LogError;
use tower::service_fn;

use crate::{
    admission::AdmissionError,
    auth::caller::AuthError,
    body::{Body, full},
    handler::{Answer, Handler},
    identity::IdentityError,
    metrics::Metrics,
    origin::OriginError,
    rollouts::RolloutError,
    route::RouteError,
    services::ServiceError,
    timed_body::BodyError,
    upstream::UpstreamError,
};

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum GatewayError {
    Origin(#[from] OriginError),
    Admission(#[from] AdmissionError),
    Auth(#[from] AuthError),
    Body(#[from] BodyError),
    Route(#[from] RouteError),
    Service(#[from] ServiceError),
    Rollout(#[from] RolloutError),
    Request(#[from] RequestError),
    Identity(#[from] IdentityError),
    Upstream(#[from] UpstreamError),
}

/// A status, and `error.code` for programs.
type Status = (S, Option<&'static str>);

pub(crate) fn respond<B, E>(
    metrics: Arc<Metrics>,
    mut inner: impl Handler<B, E>,
) -> impl Handler<B, Infallible>
where
    E: Into<GatewayError> + 'static,
{
    service_fn(move |request: Request<B>| -> Answer<Infallible> {
        let api = Api::nearest(request.uri().path());
        let metrics = Arc::clone(&metrics);
        let answer = inner.call(request);
        Box::pin(async move {
            let error: GatewayError = match answer.await {
                Ok(response) => return Ok(response),
                Err(error) => error.into(),
            };
            metrics.refused.inc();
            let response = error.response(api);
            let status = response.status().as_u16();
            tracing::info!(target: "metaclaw::refused", status, reason = %error, "refused");
            Ok(response)
        })
    })
}

pub(crate) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

// === impl GatewayError ===

impl GatewayError {
    fn status(&self) -> Status {
        match self {
            Self::Origin(error) => origin_status(error),
            Self::Admission(_) => (S::SERVICE_UNAVAILABLE, Some("too_many_streams")),
            Self::Auth(AuthError::NotAll) => (S::FORBIDDEN, None),
            Self::Auth(AuthError::Stored { .. }) => (S::FORBIDDEN, Some("owner_only")),
            Self::Auth(AuthError::ForeignReply { .. }) => {
                (S::BAD_REQUEST, Some("previous_response_not_found"))
            }
            Self::Auth(AuthError::NoKey | AuthError::WrongKey | AuthError::NotAdmin) => {
                (S::UNAUTHORIZED, Some("invalid_api_key"))
            }
            Self::Body(error) => body_status(error),
            Self::Route(error) => route_status(error),
            Self::Service(error) => (error.status, None),
            Self::Rollout(error) => rollout_status(error),
            Self::Request(_) => (S::BAD_REQUEST, None),
            Self::Identity(error) => match error.code() {
                Some(code) => (S::FORBIDDEN, Some(code)),
                None => (S::BAD_REQUEST, None),
            },
            Self::Upstream(error) => upstream_status(error),
        }
    }

    fn param(&self) -> Option<String> {
        match self {
            Self::Request(error) => error.param(),
            Self::Identity(error) => Some(error.param().to_owned()),
            Self::Upstream(UpstreamError::TextOnly) => Some("messages".to_owned()),
            Self::Upstream(UpstreamError::Untranslatable { field, .. }) => field.clone(),
            Self::Auth(AuthError::Stored { field }) => Some(field.clone()),
            Self::Upstream(UpstreamError::NoPreviousResponse { .. })
            | Self::Auth(AuthError::ForeignReply { .. }) => Some("previous_response_id".to_owned()),
            Self::Origin(_)
            | Self::Admission(_)
            | Self::Auth(_)
            | Self::Body(_)
            | Self::Route(_)
            | Self::Service(_)
            | Self::Rollout(_)
            | Self::Upstream(_) => None,
        }
    }

    fn header(&self) -> Option<(HeaderName, &'static str)> {
        match self {
            Self::Admission(_)
            | Self::Body(BodyError::NoRoom { .. })
            | Self::Rollout(RolloutError::TooMany { .. }) => Some((header::RETRY_AFTER, "1")),
            Self::Body(BodyError::Encoding { .. }) => {
                Some((header::ACCEPT_ENCODING, Encoding::NAMES))
            }
            Self::Upstream(UpstreamError::PolicyDown) => Some((header::RETRY_AFTER, "5")),
            Self::Route(RouteError::Method { allowed, .. }) => Some((header::ALLOW, allowed)),
            // A 426 must name the protocol to use instead (RFC 9110 15.5.22).
            Self::Route(RouteError::WebSocket { .. }) => Some((header::UPGRADE, "HTTP/1.1")),
            Self::Origin(_)
            | Self::Auth(_)
            | Self::Body(_)
            | Self::Route(_)
            | Self::Service(_)
            | Self::Rollout(_)
            | Self::Request(_)
            | Self::Identity(_)
            | Self::Upstream(_) => None,
        }
    }

    fn response(&self, api: Api) -> Response<Body> {
        let (status, code) = self.status();
        let body = api.error(&OwnError {
            status: status.as_u16(),
            message: &self.to_string(),
            kind: match status {
                StatusCode::UNAUTHORIZED => "authentication_error",
                StatusCode::FORBIDDEN => "permission_error",
                status if status.is_server_error() => "server_error",
                _ => "invalid_request_error",
            },
            param: self.param().as_deref(),
            code,
        });
        let mut response = json_response(status, &body);
        if let Some((name, value)) = self.header() {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }
}

fn origin_status(error: &OriginError) -> Status {
    match error {
        OriginError::Foreign { .. } | OriginError::CrossSite => {
            (S::FORBIDDEN, Some("foreign_origin"))
        }
        OriginError::Host { .. } => (S::FORBIDDEN, Some("foreign_host")),
        OriginError::BadHost | OriginError::ManyOrigins => (S::BAD_REQUEST, None),
    }
}

fn body_status(error: &BodyError) -> Status {
    match error {
        BodyError::Encoding { error, .. } if error.kind() == ErrorKind::Unsupported => {
            (S::UNSUPPORTED_MEDIA_TYPE, None)
        }
        BodyError::Cut(_) | BodyError::Encoding { .. } => (S::BAD_REQUEST, None),
        BodyError::Stalled(_) | BodyError::TooSlow { .. } => (S::REQUEST_TIMEOUT, None),
        BodyError::TooLarge { .. } => (S::PAYLOAD_TOO_LARGE, Some("request_too_large")),
        BodyError::NoRoom { .. } => (S::SERVICE_UNAVAILABLE, Some("too_many_bytes")),
    }
}

fn rollout_status(error: &RolloutError) -> Status {
    match error {
        RolloutError::Unknown { .. } => (S::NOT_FOUND, Some("no_such_rollout")),
        RolloutError::WrongKey { .. } => (S::UNAUTHORIZED, Some("invalid_api_key")),
        RolloutError::TooMany { .. } => (S::TOO_MANY_REQUESTS, Some("too_many_rollouts")),
        RolloutError::Invalid(_) => (S::BAD_REQUEST, None),
        RolloutError::Log(LogError::NoSuchRollout { .. }) => {
            (S::NOT_FOUND, Some("no_such_rollout"))
        }
        RolloutError::Log(LogError::RolloutClosed { .. }) => (S::CONFLICT, Some("rollout_closed")),
        RolloutError::Unrecorded | RolloutError::Log(_) => (S::SERVICE_UNAVAILABLE, None),
    }
}

fn route_status(error: &RouteError) -> Status {
    match error {
        RouteError::NotFound { .. } => (S::NOT_FOUND, None),
        RouteError::OwnerOnly { .. } => (S::FORBIDDEN, Some("owner_only")),
        RouteError::Method { .. } => (S::METHOD_NOT_ALLOWED, None),
        // After this answer Codex continues over HTTP at once. After others it tries again first.
        RouteError::WebSocket { .. } => (S::UPGRADE_REQUIRED, Some("no_websockets")),
    }
}

fn upstream_status(error: &UpstreamError) -> Status {
    use UpstreamError as E;
    match error {
        E::Upload(why) => match why.downcast_ref() {
            Some(error) => body_status(error),
            None => (S::BAD_REQUEST, None),
        },
        E::TextOnly => (S::BAD_REQUEST, Some("text_only_model")),
        E::Untranslatable { .. } => (S::BAD_REQUEST, Some("not_translatable")),
        E::NoUpstream => (S::SERVICE_UNAVAILABLE, Some("no_upstream")),
        E::PolicyDown => (S::SERVICE_UNAVAILABLE, Some("policy_unavailable")),
        E::Unreachable { .. } | E::NoReply { .. } => (S::BAD_GATEWAY, Some("upstream_unreachable")),
        E::NotHttp { .. } | E::Unreadable { .. } => (S::BAD_GATEWAY, Some("upstream_unreadable")),
        E::Redirected { .. } => (S::BAD_GATEWAY, Some("upstream_redirects")),
        E::Unsigned { .. } => (S::BAD_GATEWAY, Some("upstream_unsigned")),
        E::TooSlow { .. } => (S::GATEWAY_TIMEOUT, Some("upstream_timeout")),
        E::NoPreviousResponse { .. } => (S::BAD_REQUEST, Some("previous_response_not_found")),
        E::NotSpoken { .. } => (S::NOT_FOUND, Some("api_not_spoken")),
        E::Route(error) => route_status(error),
    }
}
