//! Which route is whose.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use metaclaw_dialects::Api;
use tower::Service;

use crate::{
    body::Body,
    headers,
    metrics::Metrics,
    respond::GatewayError,
    route::{FEEDBACK, RouteError, TRAIN_STEP, allow},
};

/// Chats, routes of other rooms, and all that passes.
#[derive(Debug, Clone)]
pub(crate) struct Router<C, S, P> {
    chat: C,
    services: S,
    passthrough: P,
    metrics: Arc<Metrics>,
}

/// Who serves a request.
enum Route {
    Chat,
    Service,
    Passthrough,
}

// === impl Router ===

impl<C, S, P> Router<C, S, P> {
    pub(crate) fn new(chat: C, services: S, passthrough: P, metrics: &Arc<Metrics>) -> Self {
        let metrics = Arc::clone(metrics);
        Self {
            chat,
            services,
            passthrough,
            metrics,
        }
    }

    fn route<B>(&self, request: &Request<B>) -> Result<Route, RouteError> {
        let path = request.uri().path();
        // What is not posted there is no chat: OpenAI lists the completions that it keeps.
        if Api::of_path(path).is_some() && *request.method() == Method::POST {
            if !headers::is_encoded(request.headers()) {
                return Ok(Route::Chat);
            }
            // Bytes that cannot be read cannot be edited either.
            self.metrics.encoded.inc();
            return Ok(Route::Passthrough);
        }
        if headers::is_websocket(request.headers()) {
            let path = path.to_owned();
            return Err(RouteError::WebSocket { path });
        }
        if matches!(path, FEEDBACK | TRAIN_STEP) {
            allow(request, "POST")?;
            return Ok(Route::Service);
        }
        Ok(Route::Passthrough)
    }
}

impl<C, S, P> Service<Request<Incoming>> for Router<C, S, P>
where
    C: Service<Request<Incoming>, Response = Response<Body>, Error = GatewayError>,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = GatewayError>,
    P: Service<Request<Incoming>, Response = Response<Body>, Error = GatewayError>,
    C::Future: Send + 'static,
    S::Future: Send + 'static,
    P::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = GatewayError;
    type Future = BoxFuture<'static, Result<Response<Body>, GatewayError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        // All three are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        match self.route(&request) {
            Ok(Route::Chat) => Box::pin(self.chat.call(request)),
            Ok(Route::Service) => Box::pin(self.services.call(request)),
            Ok(Route::Passthrough) => Box::pin(self.passthrough.call(request)),
            Err(error) => Box::pin(async { Err(error.into()) }),
        }
    }
}
