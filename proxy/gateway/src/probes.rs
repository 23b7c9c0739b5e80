//! How the gateway is: `/healthz`, `/readyz` and `/metrics`.

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::Either;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use metaclaw_capture::Recorder;
use serde_json::json;
use tower::{Layer, Service};

use crate::{
    auth::{AuthError, Authenticator, Caller},
    body::{Body, full},
    metrics::{self, Metrics},
    respond::{GatewayError, json_response},
    route::allow,
    services::{ServiceError, Services},
    serving::Serving,
};

/// Answers probes, whatever else goes on.
#[derive(Clone)]
pub(crate) struct ProbesLayer {
    pub authenticator: Arc<Authenticator>,
    pub metrics: Arc<Metrics>,
    pub recorder: Recorder,
    pub services: Services,
    pub serving: Arc<Serving>,
}

/// See [`ProbesLayer`].
#[derive(Clone)]
pub(crate) struct Probes<S> {
    inner: S,
    probes: ProbesLayer,
}

/// Whether a request asks how the gateway is: that is no work of an agent's, and stands in nobody's trace.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics")
}

// === impl ProbesLayer ===

impl ProbesLayer {
    /// The answer; `None` where it is no probe.
    fn answer<B>(&self, request: &Request<B>) -> Option<Result<Response<Body>, GatewayError>> {
        match request.uri().path() {
            "/healthz" => Some(Ok(json_response(StatusCode::OK, &json!({ "ok": true })))),
            "/readyz" => Some(Ok(self.ready(request.headers()))),
            "/metrics" => Some(self.metrics(request)),
            _ => None,
        }
    }

    /// Whether, and to those who may know it, why not: that names paths and programs.
    fn ready(&self, headers: &HeaderMap) -> Response<Body> {
        let is_ready = if self.serving.is_silent() {
            Err("the policy model's server does not answer".to_owned())
        } else {
            (self.services.ready)()
        };
        let Err(reason) = is_ready else {
            return json_response(StatusCode::OK, &json!({ "ready": true }));
        };
        let body = match self.authenticator.authenticate(headers) {
            Ok(_) => json!({ "ready": false, "reason": reason }),
            Err(_) => json!({ "ready": false }),
        };
        json_response(StatusCode::SERVICE_UNAVAILABLE, &body)
    }

    /// The counters of all agents: where keys are set, not for those who may speak for some only.
    fn metrics<B>(&self, request: &Request<B>) -> Result<Response<Body>, GatewayError> {
        allow(request, "GET")?;
        match self.authenticator.authenticate(request.headers())? {
            Caller::Any => {}
            Caller::Of(_) => return Err(AuthError::NotAll.into()),
        }
        let text = metrics::text(&self.metrics, self.recorder.oldest_unflushed());
        let text = text.map_err(|error| ServiceError {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: format!("the metrics cannot be written: {error}"),
        })?;
        let mut response = Response::new(full(text.into()));
        let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }
}

impl<S> Layer<S> for ProbesLayer {
    type Service = Probes<S>;

    fn layer(&self, inner: S) -> Probes<S> {
        let probes = self.clone();
        Probes { inner, probes }
    }
}

// === impl Probes ===

impl<S, B> Service<Request<B>> for Probes<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = GatewayError>,
{
    type Response = Response<Body>;
    type Error = GatewayError;
    type Future = Either<Ready<Result<Response<Body>, GatewayError>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.probes.answer(&request) {
            Some(answer) => Either::Left(ready(answer)),
            None => Either::Right(self.inner.call(request)),
        }
    }
}
