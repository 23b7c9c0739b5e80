//! The state of the gateway: `/healthz`, `/readyz` and `/metrics`; and what a browser is told that comes here.

use std::{future::ready, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use metaclaw_capture::Recorder;
use serde_json::json;
use tokio::task::spawn_blocking;
use tower::service_fn;

use crate::{
    auth::{
        Authenticator,
        caller::{AuthError, Caller},
    },
    body::{Body, full},
    handler::{Answer, Handler},
    metrics::{self, Metrics, Series},
    respond::{GatewayError, json_response},
    route::allow,
    routing::Upstreams,
    services::{ServiceError, Services},
    serving::Serving,
};

const GREETING: &str = include_str!("../data/greeting.html");

#[derive(Clone)]
pub(crate) struct ProbesLayer {
    pub authenticator: Arc<Authenticator>,
    pub metrics: Arc<Metrics>,
    pub recorder: Recorder,
    pub services: Services,
    pub serving: Arc<Serving>,
    pub upstreams: Arc<Upstreams>,
}

/// Returns whether a request asks for the gateway's state. It is no work of an agent, and has no trace.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics")
}

/// Returns whether a person looks: a program that asks for `/` gets the error of any unknown route.
fn is_browser<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get(header::ACCEPT);
    let accepted = accepted.and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|it| request.method() == Method::GET && it.contains("text/html"))
}

// === impl ProbesLayer ===

impl ProbesLayer {
    fn answer<B>(&self, request: &Request<B>) -> Option<Answer<GatewayError>> {
        let known = |answer| -> Answer<GatewayError> { Box::pin(ready(answer)) };
        match request.uri().path() {
            "/healthz" => Some(known(Ok(json_response(
                StatusCode::OK,
                &json!({ "ok": true }),
            )))),
            "/readyz" => Some(known(Ok(self.ready(request.headers())))),
            "/metrics" => Some(match self.may_see_metrics(request) {
                Ok(()) => Box::pin(self.clone().metrics()),
                Err(error) => known(Err(error)),
            }),
            "/" | "/ui" if is_browser(request) => Some(known(Ok(self.greeting(request.headers())))),
            _ => None,
        }
    }

    /// Tells a person whose browser came to the proxy's port what this is, and where the page is.
    fn greeting(&self, headers: &HeaderMap) -> Response<Body> {
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let is_named = |name: &&str| {
            let rest = host.and_then(|host| host.strip_prefix(name.as_bytes()));
            matches!(rest, Some([] | [b':', ..]))
        };
        // Nothing of the request is shown but one of these.
        let name = ["127.0.0.1", "localhost", "[::1]"]
            .into_iter()
            .find(is_named);
        let link = name.zip(self.services.page_port);
        let page = link.map_or_else(
            || "the page".to_owned(),
            |(name, port)| format!("<a href=\"http://{name}:{port}/ui\">the page</a>"),
        );
        let mut response = Response::new(full(GREETING.replace("{page}", &page).into()));
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
        response
    }

    /// Answers whether it is ready. Callers with a key also get the reason, because that names paths and programs.
    fn ready(&self, headers: &HeaderMap) -> Response<Body> {
        let Err(nobody) = self.upstreams.is_ready(&self.metrics.answers) else {
            return json_response(StatusCode::OK, &json!({ "ready": true }));
        };
        let reason = if self.serving.is_silent() {
            "the policy model's server does not answer".to_owned()
        } else {
            (self.services.ready)().err().unwrap_or(nobody)
        };
        let body = match self.authenticator.authenticate(headers) {
            Ok(_) => json!({ "ready": false, "reason": reason }),
            Err(_) => json!({ "ready": false }),
        };
        json_response(StatusCode::SERVICE_UNAVAILABLE, &body)
    }

    /// Checks access to the counters of all agents. If keys are set, a key of some agents only is not enough.
    fn may_see_metrics<B>(&self, request: &Request<B>) -> Result<(), GatewayError> {
        allow(request, "GET")?;
        match self.authenticator.authenticate(request.headers())? {
            Caller::Any | Caller::Anyone(_) => Ok(()),
            Caller::Of(_) => Err(AuthError::NotAll.into()),
        }
    }

    async fn metrics(self) -> Result<Response<Body>, GatewayError> {
        let others = Arc::clone(&self.services.metrics);
        let others = spawn_blocking(move || others()).await;
        let others: Vec<Series> = others.unwrap_or_else(|error| {
            tracing::error!(%error, "the counters of other crates are missing from /metrics");
            Vec::new()
        });
        let text = metrics::text(&self.metrics, self.recorder.oldest_unflushed(), &others)
            .map_err(|error| ServiceError {
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
                Some(answer) => answer,
                None => inner.call(request),
            }
        })
    }
}
