//! Passes requests that are not chats to an upstream, unread.

use std::{pin::pin, sync::Arc};

use futures_util::stream;
use http::{
    Method, Request, Response, StatusCode, Version, header, request::Parts, uri::PathAndQuery,
};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use metaclaw_chat::AgentId;
use metaclaw_dialects::Api;
use tracing::{Span, field::display};

use crate::{
    auth::caller::Caller,
    body::Body,
    gathered::Gathered,
    headers, identity,
    metrics::RequestMetrics,
    relay::Relay,
    respond::GatewayError,
    route::{MODELS, RouteError, below_v1, is_at},
    routing::{self, Upstreams},
    timed_body::TimedBody,
    upstream::{Outgoing, Sent, Upstream, UpstreamBody},
};

pub(crate) struct Asked<B> {
    pub route: PathAndQuery,
    pub head: Parts,
    pub body: B,
    pub agent: AgentId,
    pub metrics: RequestMetrics,
}

impl<B> Asked<B> {
    pub(crate) fn new(request: Request<B>) -> Result<Self, GatewayError> {
        let route = below_v1(&request)?;
        let (head, body) = request.into_parts();
        let caller = Caller::from_extensions(&head.extensions)?;
        let metrics = RequestMetrics::from_extensions(&head.extensions);
        let agent = identity::agent_of(&head.headers, &caller)?;
        metrics.set_agent(&agent);
        Span::current().record("agent", display(&agent));
        Ok(Self {
            route,
            head,
            body,
            agent,
            metrics,
        })
    }
}

pub(crate) async fn pass(
    upstreams: Arc<Upstreams>,
    request: Request<Incoming>,
) -> Result<Response<Body>, GatewayError> {
    let Asked {
        route,
        head,
        body,
        agent,
        metrics,
    } = Asked::new(request)?;
    let target = target(&upstreams, &agent, &head.method, &route)?;
    metrics.passed(&head.method, route.path());
    let mut headers = head.headers;
    let body = if head.method == Method::GET && is_at(route.path(), MODELS) {
        // The request is sent without its body, so that a redirect can be followed.
        headers.remove(header::CONTENT_LENGTH);
        Sent::Chat(Vec::new())
    } else {
        Sent::Stream(TimedBody::new(body).map_err(Into::into).boxed_unsync())
    };
    if let Some(api) = target.headers_of(&route) {
        headers::addressed(&mut headers, api);
    }
    let outgoing = Outgoing {
        method: head.method,
        route,
        headers,
        body,
    };
    let asking = pin!(routing::pass(&upstreams, &target, outgoing));
    let reply = metrics.ask(&target.name, asking).await?;
    Ok(relayed(reply, &target, head.version))
}

pub(crate) fn relayed(
    reply: Response<UpstreamBody>,
    target: &Upstream,
    version: Version,
) -> Response<Body> {
    let (mut reply, body) = reply.into_parts();
    reply.headers = headers::end_to_end(reply.headers);
    // The `Content-Length` of a 304 describes a body that the reply does not have. hyper would remove the header if the
    // body were known to be empty.
    let tells_length = reply.status == StatusCode::NOT_MODIFIED
        && version == Version::HTTP_11
        && reply.headers.contains_key(header::CONTENT_LENGTH);
    let body = if tells_length {
        Body::new(StreamBody::new(stream::empty()))
    } else {
        Body::new(Gathered::new(Relay::new(body, None, target.idle)))
    };
    Response::from_parts(reply, body)
}

/// Returns the server for a route that is not a chat: the list of models comes from the server that answers chats, and
/// everything else goes to an upstream. None of it goes to our own trainer, which would execute orders there, and has
/// other agents' conversations. Its key is ours, not the callers'.
fn target(
    upstreams: &Upstreams,
    agent: &AgentId,
    method: &Method,
    route: &PathAndQuery,
) -> Result<Arc<Upstream>, GatewayError> {
    let is_models = is_at(route.path(), MODELS) && *method == Method::GET;
    let targets = upstreams.targets(agent);
    let takes = |able: &&Arc<Upstream>| is_models || able.capabilities.takes_everything;
    let mut able = targets.iter().filter(takes);
    let suits = |able: &&Arc<Upstream>| is_models || able.capabilities.suits(route);
    let suited = able.clone().find(suits);
    // Routes of Anthropic's API carry conversations, so a server without these routes gets none of them.
    let is_messages = Api::nearest(route.path()) == Api::Messages;
    let any = || able.next().filter(|_| !is_messages);
    if let Some(target) = suited.or_else(any) {
        return Ok(Arc::clone(target));
    }
    if is_models || !upstreams.has_policy(agent) {
        return Err(upstreams.nobody(agent).into());
    }
    Err(RouteError::not_found(method, route.path()).into())
}
