//! The service that answers every request: the layers around the routes, and why in this order.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use hyper::body::Incoming;
use metaclaw_dialects::Api;
use tower::{Layer, Service, ServiceBuilder};
use tower_http::trace::TraceLayer;
use tracing::{Span, field::Empty};

use crate::{
    admission::Admission,
    auth::AuthLayer,
    body_limit::BodyLimitLayer,
    chat::Chat,
    metrics::{Metrics, MetricsLayer},
    origin::OriginLayer,
    passthrough::Passthrough,
    probes::{ProbesLayer, is_probe},
    respond::RespondLayer,
    router::Router,
    serve_calls::ServeCalls,
    stalled_streams::StalledLayer,
};

/// The layers and the services that they stand around; each holds what it uses.
pub(crate) struct Stack {
    pub metrics: Arc<Metrics>,
    pub stalled: StalledLayer,
    pub origin: OriginLayer,
    pub probes: ProbesLayer,
    pub admission: Admission,
    pub auth: AuthLayer,
    pub body_limit: BodyLimitLayer,
    pub chat: Chat,
    pub services: ServeCalls,
    pub passthrough: Passthrough,
}

/// Builds the service. A request goes through the layers from the top down, its answer from the bottom up;
/// ARCHITECTURE.md lists them.
pub(crate) fn service(
    stack: Stack,
) -> impl Service<
    Request<Incoming>,
    Response = Response<
        impl http_body::Body<Data = bytes::Bytes, Error = crate::body::BoxError> + Send,
    >,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    let set_parent = stack.services.0.set_parent;
    let respond = RespondLayer::new(&stack.metrics);
    let routes = Router::new(
        // A chat is read whole before anybody is asked: not before it is known that its caller may, and
        // what only passes is not held.
        stack.body_limit.layer(stack.chat),
        stack.body_limit.layer(stack.services),
        stack.passthrough,
        &stack.metrics,
    );
    ServiceBuilder::new()
        // Every line that is logged below stands in the request's span, the bodies' as well.
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(move |request: &Request<_>| {
                    let span = span(request);
                    set_parent(&span, request.headers());
                    span
                })
                .on_request(())
                .on_response(())
                .on_failure(()),
        )
        // Counts every answer, refusals too, and times the body that leaves us.
        .layer(MetricsLayer::new(&stack.metrics))
        // Whoever takes nothing of a stream gives up all that is held for it below.
        .layer(stack.stalled)
        // What the origin refuses is answered without a word for its page.
        .layer(respond.clone())
        // Before anything is done or told: a page of a foreign site learns nothing and uses nothing up.
        .layer(stack.origin)
        // Below, so that a page that may ask reads errors as well.
        .layer(respond)
        // A gateway that is full still says how it is.
        .layer(stack.probes)
        // Before keys are looked at: a crowd of wrong ones is a crowd.
        .layer(stack.admission)
        // Before a byte of the body is read.
        .layer(stack.auth)
        .service(routes)
}

/// What is told of a request is filled in as it becomes known.
fn span<B>(request: &Request<B>) -> Span {
    let path = request.uri().path();
    if is_probe(path) {
        return Span::none();
    }
    tracing::info_span!(
        "request",
        api = Api::of_path(path).map_or("other", Api::name),
        agent = Empty,
        session = Empty,
        upstream = Empty,
        turn = Empty,
    )
}
