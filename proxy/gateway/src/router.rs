//! Assigns routes to handlers.

use std::future::ready;

use http::{Method, Request};
use hyper::body::Incoming;
use metaclaw_dialects::Api;
use tower::service_fn;

use crate::{
    auth::caller::Caller,
    handler::{Answer, Handler},
    headers,
    respond::GatewayError,
    rollouts::RolloutPath,
    route::{
        COUNT_TOKENS, FEEDBACK, MEMORY, ROLLOUTS, RouteError, TRAIN_STEP, allow, is_at,
        looks_like_a_chat, refuse_owners_routes,
    },
};

enum Route {
    Chat,
    Service,
    CountTokens,
    Passthrough,
}

#[derive(Clone)]
pub(crate) struct Routes<C, S, T, P> {
    pub chat: C,
    pub services: S,
    pub count_tokens: T,
    pub passthrough: P,
}

pub(crate) fn router<C, S, T, P>(mut to: Routes<C, S, T, P>) -> impl Handler<Incoming, GatewayError>
where
    C: Handler<Incoming, GatewayError>,
    S: Handler<Incoming, GatewayError>,
    T: Handler<Incoming, GatewayError>,
    P: Handler<Incoming, GatewayError>,
{
    service_fn(move |request: Request<Incoming>| -> Answer<GatewayError> {
        match route(&request) {
            Ok(Route::Chat) => to.chat.call(request),
            Ok(Route::Service) => to.services.call(request),
            Ok(Route::CountTokens) => to.count_tokens.call(request),
            Ok(Route::Passthrough) => to.passthrough.call(request),
            Err(error) => Box::pin(ready(Err(error.into()))),
        }
    })
}

fn route<B>(request: &Request<B>) -> Result<Route, RouteError> {
    let path = request.uri().path();
    // Only a POST is a chat: OpenAI lists stored completions with GET.
    if Api::of_path(path).is_some() && *request.method() == Method::POST {
        return Ok(Route::Chat);
    }
    if headers::is_websocket(request.headers()) {
        let path = path.to_owned();
        return Err(RouteError::WebSocket { path });
    }
    let extensions = request.extensions();
    // An agent that does a task does not say how well it did it, and reaches nothing else of the owner's.
    let is_in_rollout = extensions.get::<RolloutPath>().is_some();
    if is_in_rollout {
        refuse_owners_routes(request, is_in_rollout)?;
    }
    if is_at(path, ROLLOUTS) {
        allow(request, if path == ROLLOUTS { "POST" } else { "GET" })?;
        return Ok(Route::Service);
    }
    if is_at(path, MEMORY) {
        return Ok(Route::Service);
    }
    if matches!(path, FEEDBACK | TRAIN_STEP) {
        allow(request, "POST")?;
        return Ok(Route::Service);
    }
    if path == COUNT_TOKENS && *request.method() == Method::POST {
        return Ok(Route::CountTokens);
    }
    if matches!(extensions.get(), Some(Caller::Of(_))) {
        refuse_owners_routes(request, is_in_rollout)?;
    }
    let carries_none = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS];
    if !carries_none.contains(request.method()) && looks_like_a_chat(path) {
        // No conversation passes unread, even if a lenient upstream would answer it.
        if Api::of_path(path).is_some() {
            allow(request, "POST")?;
        }
        return Err(RouteError::not_found(request.method(), path));
    }
    Ok(Route::Passthrough)
}
