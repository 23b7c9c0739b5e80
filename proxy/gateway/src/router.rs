//! Assigns routes to handlers.

use std::{future::ready, sync::Arc};

use http::{Method, Request};
use hyper::body::Incoming;
use metaclaw_dialects::Api;
use tower::service_fn;

use crate::{
    handler::{Answer, Handler},
    headers,
    metrics::Metrics,
    respond::GatewayError,
    route::{COUNT_TOKENS, FEEDBACK, RouteError, TRAIN_STEP, allow, refuse_memory},
};

/// The handler of a request.
enum Route {
    Chat,
    Service,
    CountTokens,
    Passthrough,
}

/// Makes the router for chats, routes of other crates, and everything that passes.
pub(crate) fn router(
    mut chat: impl Handler<Incoming, GatewayError>,
    mut services: impl Handler<Incoming, GatewayError>,
    mut count_tokens: impl Handler<Incoming, GatewayError>,
    mut passthrough: impl Handler<Incoming, GatewayError>,
    metrics: Arc<Metrics>,
) -> impl Handler<Incoming, GatewayError> {
    service_fn(move |request: Request<Incoming>| -> Answer<GatewayError> {
        match route(&request, &metrics) {
            Ok(Route::Chat) => chat.call(request),
            Ok(Route::Service) => services.call(request),
            Ok(Route::CountTokens) => count_tokens.call(request),
            Ok(Route::Passthrough) => passthrough.call(request),
            Err(error) => Box::pin(ready(Err(error.into()))),
        }
    })
}

fn route<B>(request: &Request<B>, metrics: &Metrics) -> Result<Route, RouteError> {
    let path = request.uri().path();
    // Only a POST is a chat: OpenAI lists stored completions with GET.
    if Api::of_path(path).is_some() && *request.method() == Method::POST {
        if !headers::is_encoded(request.headers()) {
            return Ok(Route::Chat);
        }
        // Compressed bytes cannot be read, so they cannot be edited.
        metrics.encoded.inc();
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
    refuse_memory(path)?;
    let is_plain = !headers::is_encoded(request.headers());
    if path == COUNT_TOKENS && *request.method() == Method::POST && is_plain {
        return Ok(Route::CountTokens);
    }
    Ok(Route::Passthrough)
}
