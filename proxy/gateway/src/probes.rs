//! How the gateway is: `/healthz`, `/readyz` and `/metrics`.

use std::{future::ready, sync::Arc};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use metaclaw_capture::Recorder;
use serde_json::json;
use tower::service_fn;

use crate::{
    auth::{AuthError, Authenticator, Caller},
    body::{Body, full},
    handler::{Answer, Handler},
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
    pub(crate) fn around<B>(
        self,
        mut inner: impl Handler<B, GatewayError>,
    ) -> impl Handler<B, GatewayError> {
        service_fn(move |request: Request<B>| -> Answer<GatewayError> {
            match self.answer(&request) {
                Some(answer) => Box::pin(ready(answer)),
                None => inner.call(request),
            }
        })
    }
}
