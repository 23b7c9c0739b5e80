//! Builds the service that answers every request: the layers around the routes, with the reason for their order.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use hyper::body::Incoming;
use metaclaw_dialects::Api;
use tower::{Service, ServiceBuilder, service_fn};
use tower_http::trace::TraceLayer;
use tracing::{Span, field::Empty};

use crate::{
    admission::Admission,
    auth::layer::AuthLayer,
    body_limit::BodyLimitLayer,
    chat::Chat,
    count_tokens::count_tokens,
    handler::{Answer, Handler},
    metrics::{Metrics, count_requests},
    origin::OriginLayer,
    passthrough::pass,
    probes::{ProbesLayer, is_probe},
    respond::{GatewayError, respond},
    rollouts::{Rollouts, strip_path},
    router::{Routes, router},
    routing::Upstreams,
    serve_calls::serve_call,
    services::Services,
};

pub(crate) struct Stack {
    pub metrics: Arc<Metrics>,
    pub origin: OriginLayer,
    pub probes: ProbesLayer,
    pub admission: Admission,
    pub auth: AuthLayer,
    pub served: Served,
}

pub(crate) struct Served {
    pub body_limit: BodyLimitLayer,
    pub chat: Arc<Chat>,
    pub services: Services,
    /// None, where nothing is recorded.
    pub rollouts: Option<Arc<Rollouts>>,
    /// The upstreams for requests that only pass.
    pub upstreams: Arc<Upstreams>,
}

/// Builds the service. A request goes through the layers from the top down, and its answer from the bottom up.
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
    let Stack {
        metrics,
        origin,
        probes,
        admission,
        auth,
        served,
    } = stack;
    let set_parent = served.services.set_parent;
    // Every log line below belongs to the request's span, including those of bodies.
    let trace = TraceLayer::new_for_http()
        .make_span_with(move |request: &Request<_>| {
            let span = span(request);
            set_parent(&span, request.headers());
            span
        })
        .on_request(())
        .on_response(())
        .on_failure(());
    ServiceBuilder::new()
        // Below this, a request of a rollout has the path that it would have elsewhere, and a route of ours its own.
        .map_request(strip_path)
        .layer(trace)
        // It counts every answer, refusals too, and measures the duration of the reply's body.
        .layer_fn(|below| count_requests(Arc::clone(&metrics), below))
        // The refused page cannot read the answer to a refused origin.
        .layer_fn(|below| respond(Arc::clone(&metrics), below))
        // This comes before anything is done or revealed, so that a page of a foreign site learns nothing and uses
        // nothing up.
        .layer_fn(|below| origin.clone().around(below))
        // This is below the origin check, so that an accepted page can read errors too.
        .layer_fn(|below| respond(Arc::clone(&metrics), below))
        // A full gateway still answers probes.
        .layer_fn(|below| probes.clone().around(below))
        // This comes before keys are checked, because many wrong keys must be limited too.
        .layer_fn(|below| admission.clone().around(below))
        // This comes before a byte of the body is read.
        .layer_fn(|below| auth.clone().around(below))
        .service(routes(served))
}

/// Returns the handlers. Chats, calls and conversations whose tokens are counted are read completely, once the caller
/// is authorised. Bodies that only pass are not held.
fn routes(served: Served) -> impl Handler<Incoming, GatewayError> {
    let Served {
        body_limit,
        chat,
        services,
        rollouts,
        upstreams,
    } = served;
    let chat = service_fn(move |request| -> Answer<GatewayError> {
        Box::pin(Arc::clone(&chat).serve(request))
    });
    let services = service_fn(move |request| -> Answer<GatewayError> {
        Box::pin(serve_call(services.clone(), rollouts.clone(), request))
    });
    let counting = Arc::clone(&upstreams);
    let count_tokens = service_fn(move |request| -> Answer<GatewayError> {
        Box::pin(count_tokens(Arc::clone(&counting), request))
    });
    let passthrough = service_fn(move |request| -> Answer<GatewayError> {
        Box::pin(pass(Arc::clone(&upstreams), request))
    });
    let to = Routes {
        chat: body_limit.clone().around(chat),
        services: body_limit.clone().around(services),
        count_tokens: body_limit.around(count_tokens),
        passthrough,
    };
    router(to)
}

/// The fields of the span are filled in as they become known: `turn` by `metaclaw-capture`, when the log has the turn.
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
        mended = Empty,
        turn = Empty,
    )
}
