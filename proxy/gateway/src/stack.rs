//! The service that answers every request: the layers around the routes, and why in this order.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use hyper::body::Incoming;
use metaclaw_dialects::Api;
use tower::{Layer, Service, service_fn};
use tower_http::trace::TraceLayer;
use tracing::{Span, field::Empty};

use crate::{
    admission::Admission,
    auth::AuthLayer,
    body_limit::BodyLimitLayer,
    chat::Chat,
    handler::Answer,
    metrics::{Metrics, count_requests},
    origin::OriginLayer,
    passthrough::pass,
    probes::{ProbesLayer, is_probe},
    respond::{GatewayError, respond},
    router::router,
    routing::Upstreams,
    serve_calls::serve_call,
    services::Services,
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
    pub chat: Arc<Chat>,
    pub services: Services,
    /// For what only passes.
    pub upstreams: Arc<Upstreams>,
}

/// Builds the service, from the inside out: the layer that stands last here is the first that a request
/// goes through, and the last that its answer does. ARCHITECTURE.md lists them from there.
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
    let Stack {
        metrics,
        chat,
        services,
        upstreams,
        ..
    } = stack;
    let set_parent = services.set_parent;
    let chat = service_fn(move |request| -> Answer<GatewayError> {
        Box::pin(Arc::clone(&chat).serve(request))
    });
    let services = service_fn(move |request| -> Answer<GatewayError> {
        Box::pin(serve_call(services.clone(), request))
    });
    let passthrough = service_fn(move |request| -> Answer<GatewayError> {
        Box::pin(pass(Arc::clone(&upstreams), request))
    });
    // A chat is read whole before anybody is asked: not before it is known that its caller may, and
    // what only passes is not held.
    let chat = stack.body_limit.clone().around(chat);
    let services = stack.body_limit.around(services);
    let routes = router(chat, services, passthrough, Arc::clone(&metrics));
    // Before a byte of the body is read.
    let service = stack.auth.around(routes);
    // Before keys are looked at: a crowd of wrong ones is a crowd.
    let service = stack.admission.around(service);
    // A gateway that is full still says how it is.
    let service = stack.probes.around(service);
    // Below the origin, so that a page that may ask reads errors as well.
    let service = respond(Arc::clone(&metrics), service);
    // Before anything is done or told: a page of a foreign site learns nothing and uses nothing up.
    let service = stack.origin.around(service);
    // What the origin refuses is answered without a word for its page.
    let service = respond(Arc::clone(&metrics), service);
    // Whoever takes nothing of a stream gives up all that is held for it below.
    let service = stack.stalled.around(service);
    // Counts every answer, refusals too, and times the body that leaves us.
    let service = count_requests(metrics, service);
    // Every line that is logged below stands in the request's span, the bodies' as well.
    TraceLayer::new_for_http()
        .make_span_with(move |request: &Request<_>| {
            let span = span(request);
            set_parent(&span, request.headers());
            span
        })
        .on_request(())
        .on_response(())
        .on_failure(())
        .layer(service)
}

/// What is told of a request is filled in as it becomes known: `turn` by `metaclaw-capture`, when the log
/// has the turn.
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
