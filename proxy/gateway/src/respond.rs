//! What goes wrong, in the caller's words: the one place where an error becomes a status.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use metaclaw_dialects::{Api, ErrorBody, request::RequestError};
use tower::service_fn;

use crate::{
    admission::AdmissionError,
    auth::AuthError,
    body::{Body, full},
    handler::{Answer, Handler},
    identity::IdentityError,
    metrics::Metrics,
    origin::OriginError,
    route::RouteError,
    services::ServiceError,
    timed_body::BodyError,
    upstream::UpstreamError,
};

/// Why the gateway answers itself instead of an upstream: the error of the layer that says so.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum GatewayError {
    Origin(#[from] OriginError),
    Admission(#[from] AdmissionError),
    Auth(#[from] AuthError),
    Body(#[from] BodyError),
    Route(#[from] RouteError),
    Service(#[from] ServiceError),
    Request(#[from] RequestError),
    Identity(#[from] IdentityError),
    Upstream(#[from] UpstreamError),
}

/// How an error is answered, beside its words.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    /// For programs: `error.code`.
    code: Option<&'static str>,
    /// The field that is wrong: `error.param`.
    param: Option<String>,
    headers: HeaderMap,
}

/// Turns errors into answers.
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

/// A JSON answer of our own.
pub(crate) fn json_response(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

// === impl GatewayError ===

impl GatewayError {
    fn problem(&self) -> Problem {
        match self {
            Self::Origin(error) => of_origin(error),
            Self::Admission(_) => {
                let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE);
                problem.code("too_many_streams").retry_after("1")
            }
            Self::Auth(error) => of_auth(error),
            Self::Body(error) => of_body(error),
            Self::Route(error) => of_route(error),
            Self::Service(error) => Problem::new(error.status),
            Self::Request(error) => {
                let param = error.param();
                Problem {
                    param,
                    ..Problem::new(StatusCode::BAD_REQUEST)
                }
            }
            Self::Identity(error) => of_identity(error),
            Self::Upstream(error) => of_upstream(error),
        }
    }

    /// The answer, worded as the caller's API words errors.
    fn response(&self, api: Api) -> Response<Body> {
        let Problem {
            status,
            code,
            param,
            headers,
        } = self.problem();
        let body = api.error(&ErrorBody {
            status: status.as_u16(),
            message: &self.to_string(),
            kind: match status {
                StatusCode::UNAUTHORIZED => "authentication_error",
                StatusCode::FORBIDDEN => "permission_error",
                status if status.is_server_error() => "server_error",
                _ => "invalid_request_error",
            },
            param: param.as_deref(),
            code,
        });
        let mut response = json_response(status, &body);
        response.headers_mut().extend(headers);
        response
    }
}

fn of_origin(error: &OriginError) -> Problem {
    match error {
        OriginError::Foreign { .. } | OriginError::CrossSite => {
            Problem::new(StatusCode::FORBIDDEN).code("foreign_origin")
        }
        OriginError::Host { .. } => Problem::new(StatusCode::FORBIDDEN).code("foreign_host"),
        OriginError::BadHost => Problem::new(StatusCode::BAD_REQUEST),
    }
}

fn of_auth(error: &AuthError) -> Problem {
    match error {
        AuthError::NoKey | AuthError::WrongKey | AuthError::NotAdmin => {
            Problem::new(StatusCode::UNAUTHORIZED).code("invalid_api_key")
        }
        AuthError::NotAll => Problem::new(StatusCode::FORBIDDEN),
    }
}

fn of_body(error: &BodyError) -> Problem {
    match error {
        BodyError::Cut(_) => Problem::new(StatusCode::BAD_REQUEST),
        BodyError::Stalled(_) | BodyError::TooSlow { .. } => {
            Problem::new(StatusCode::REQUEST_TIMEOUT)
        }
        BodyError::TooLarge { .. } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE).code("request_too_large")
        }
        BodyError::NoRoom { .. } => {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE);
            problem.code("too_many_bytes").retry_after("1")
        }
    }
}

fn of_route(error: &RouteError) -> Problem {
    match error {
        RouteError::NotFound { .. } => Problem::new(StatusCode::NOT_FOUND),
        RouteError::Method { allowed, .. } => {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED).header(header::ALLOW, allowed)
        }
        // The answer upon which Codex goes on over HTTP at once; upon others it tries again first. A 426
        // must say which protocol there is instead (RFC 9110 15.5.22).
        RouteError::WebSocket { .. } => Problem::new(StatusCode::UPGRADE_REQUIRED)
            .code("no_websockets")
            .header(header::UPGRADE, "HTTP/1.1"),
    }
}

fn of_identity(error: &IdentityError) -> Problem {
    let status = if error.is_forbidden() {
        StatusCode::FORBIDDEN
    } else {
        StatusCode::BAD_REQUEST
    };
    Problem {
        code: error.code(),
        param: Some(error.param().to_owned()),
        ..Problem::new(status)
    }
}

fn of_upstream(error: &UpstreamError) -> Problem {
    match error {
        UpstreamError::Upload(why) => match why.downcast_ref() {
            Some(error) => of_body(error),
            None => Problem::new(StatusCode::BAD_REQUEST),
        },
        UpstreamError::TextOnly => Problem {
            param: Some("messages".to_owned()),
            ..Problem::new(StatusCode::BAD_REQUEST).code("text_only_model")
        },
        UpstreamError::Untranslatable { field, .. } => Problem {
            param: field.clone(),
            ..Problem::new(StatusCode::BAD_REQUEST).code("not_translatable")
        },
        UpstreamError::NoUpstream => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE).code("no_upstream")
        }
        UpstreamError::PolicyDown => {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE);
            problem.code("policy_unavailable").retry_after("5")
        }
        UpstreamError::Unreachable { .. } | UpstreamError::NoReply { .. } => {
            Problem::new(StatusCode::BAD_GATEWAY).code("upstream_unreachable")
        }
        UpstreamError::NotHttp { .. } | UpstreamError::Unreadable { .. } => {
            Problem::new(StatusCode::BAD_GATEWAY).code("upstream_unreadable")
        }
        UpstreamError::TooSlow { .. } => {
            Problem::new(StatusCode::GATEWAY_TIMEOUT).code("upstream_timeout")
        }
        UpstreamError::NotSpoken { .. } => {
            Problem::new(StatusCode::NOT_FOUND).code("api_not_spoken")
        }
        UpstreamError::NotFound { .. } => Problem::new(StatusCode::NOT_FOUND),
    }
}

// === impl Problem ===

impl Problem {
    fn new(status: StatusCode) -> Self {
        Self {
            status,
            code: None,
            param: None,
            headers: HeaderMap::new(),
        }
    }

    fn code(self, code: &'static str) -> Self {
        let code = Some(code);
        Self { code, ..self }
    }

    fn retry_after(self, seconds: &'static str) -> Self {
        self.header(header::RETRY_AFTER, seconds)
    }

    fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }
}
