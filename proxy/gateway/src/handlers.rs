//! Which route does what.

use std::{pin::pin, sync::Arc};

use futures_util::stream;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header,
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use metaclaw_chat::AgentId;
use metaclaw_dialects::{Api, Dialect};
use serde_json::{Value, json};

use crate::{
    auth::{Caller, shown_keys},
    body::Passing,
    chat::chat,
    gateway::Shared,
    headers, identity,
    metrics::{self, Visit},
    refusal::{Refusal, json_response},
    relay::{Body, Relay, full},
    services::{Call, Service},
    upstream::{Outgoing, Sent, Upstream},
};

/// The admin call of the original, which scripts still use.
const TRAIN_STEP: &str = "/v1/admin/train_step";
const FEEDBACK: &str = "/v1/feedback";

/// Answers a request; a refusal becomes an error in the caller's dialect.
pub(crate) async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    shared.metrics.requests.inc();
    let path = request.uri().path();
    let dialect = Dialect::of_path(path);
    let version = request.version();
    let mut visit = Visit::new(&shared.metrics, path);
    let answer = for_page(&shared, request, &mut visit).await;
    let response = answer.unwrap_or_else(|refusal| refuse(&shared, &refusal, dialect));
    visit.answered(response.status().as_u16());
    if version == Version::HTTP_2 {
        shared.stalled.watch(response)
    } else {
        response
    }
}

pub(crate) fn refuse(shared: &Shared, refusal: &Refusal, dialect: Dialect) -> Response<Body> {
    shared.metrics.refused.inc();
    let status = refusal.status().as_u16();
    tracing::info!(target: "metaclaw::refused", status, reason = %refusal, "refused");
    refusal.response(dialect)
}

/// Keeps the web pages of others out, and lets those that may ask read the answer, errors as well.
async fn for_page(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    visit: &mut Visit,
) -> Result<Response<Body>, Refusal> {
    if !shared.door.is_locked() {
        shared.origins.check_name(&request)?;
    }
    let Some(page) = shared.origins.admit(request.headers())? else {
        return route(shared, request, visit).await;
    };
    if let Some(answer) = page.preflight(&request) {
        return Ok(answer);
    }
    let dialect = Dialect::of_path(request.uri().path());
    let answer = route(shared, request, visit).await;
    let mut response = answer.unwrap_or_else(|refusal| refuse(shared, &refusal, dialect));
    page.let_read(response.headers_mut());
    Ok(response)
}

async fn route(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    visit: &mut Visit,
) -> Result<Response<Body>, Refusal> {
    let api = Api::of_path(request.uri().path());
    // What is not posted there is no chat: OpenAI lists the completions that it keeps.
    if let Some(api) = api.filter(|_| *request.method() == Method::POST) {
        if headers::is_encoded(request.headers()) {
            // Bytes that cannot be read cannot be edited either.
            shared.metrics.encoded.inc();
            return pass(shared, request, visit).await;
        }
        let route = route_of(&request)?;
        return chat(shared, api, request, route, visit).await;
    }
    if headers::is_websocket(request.headers()) {
        let path = request.uri().path().to_owned();
        return Err(Refusal::WebSocket { path });
    }
    match request.uri().path() {
        "/healthz" => Ok(json_response(StatusCode::OK, &json!({ "ok": true }))),
        "/readyz" => Ok(ready(shared)),
        "/metrics" => {
            allow(&request, "GET")?;
            metrics(shared, request.headers())
        }
        FEEDBACK => {
            allow(&request, "POST")?;
            serve(shared, request, shared.services.feedback.as_deref()).await
        }
        TRAIN_STEP => {
            allow(&request, "POST")?;
            let token = &shared.services.admin_token;
            if !shown_keys(request.headers()).any(|shown| token.matches(shown)) {
                return Err(Refusal::NotAdmin);
            }
            serve(shared, request, shared.services.train_step.as_deref()).await
        }
        _ => pass(shared, request, visit).await,
    }
}

fn allow(request: &Request<Incoming>, allowed: &'static str) -> Result<(), Refusal> {
    if request.method().as_str() == allowed {
        return Ok(());
    }
    Err(Refusal::Method {
        path: request.uri().path().to_owned(),
        method: request.method().to_string(),
        allowed,
    })
}

fn ready(shared: &Shared) -> Response<Body> {
    let is_ready = match shared.serving.is_silent() {
        true => Err("the policy model's server does not answer".to_owned()),
        false => (shared.services.ready)(),
    };
    match is_ready {
        Ok(()) => json_response(StatusCode::OK, &json!({ "ready": true })),
        Err(reason) => {
            let body = json!({ "ready": false, "reason": reason });
            json_response(StatusCode::SERVICE_UNAVAILABLE, &body)
        }
    }
}

/// The counters of all agents: where keys are set, not for those who may speak for some only.
fn metrics(shared: &Shared, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
    match shared.door.admit(headers)? {
        Caller::Any => {}
        Caller::Of(_) => return Err(Refusal::NotAll),
    }
    let unflushed = shared.recorder.oldest_unflushed();
    let text = metrics::text(&shared.metrics, unflushed);
    let text = text.map_err(|error| Refusal::Service {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        message: format!("the metrics cannot be written: {error}"),
    })?;
    let mut response = Response::new(full(text.into()));
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A route that another room serves.
async fn serve(
    shared: &Shared,
    request: Request<Incoming>,
    service: Option<&dyn Service>,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let agent = if path == TRAIN_STEP {
        identity::agent_of(&head.headers, &crate::auth::Caller::Any)?
    } else {
        identity::agent_of(&head.headers, &shared.door.admit(&head.headers)?)?
    };
    let Some(service) = service else {
        let message = format!("{path} is not served: nothing here learns");
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Refusal::Service { status, message });
    };
    let _ticket = shared.enter()?;
    let raw = shared.bodies.read(body).await?;
    let body = if raw.is_empty() {
        Value::Null
    } else {
        let body = serde_json::from_slice(&raw);
        body.map_err(|error| Refusal::Service {
            status: StatusCode::BAD_REQUEST,
            message: format!("the request body is no JSON: {error}"),
        })?
    };
    match service.call(Call { agent, body }).await {
        Ok(answer) => Ok(json_response(StatusCode::OK, &answer)),
        Err(error) => Err(Refusal::Service {
            status: error.status,
            message: error.message,
        }),
    }
}

/// Any other route below `/v1/`: it passes, unread.
async fn pass(
    shared: &Shared,
    request: Request<Incoming>,
    visit: &mut Visit,
) -> Result<Response<Body>, Refusal> {
    let route = route_of(&request)?;
    let caller = shared.door.admit(request.headers())?;
    let agent = identity::agent_of(request.headers(), &caller)?;
    visit.is_of(&agent);
    let ticket = shared.enter()?;
    let target = target(shared, &agent, request.method(), &route)?;
    let (head, body) = request.into_parts();
    let version = head.version;
    let body = Passing::new(body).boxed_unsync();
    let outgoing = Outgoing {
        method: head.method,
        route: &route,
        headers: head.headers,
        body: Sent::Stream(body),
    };
    let asking = pin!(shared.upstreams.pass(&target, outgoing));
    let reply = visit.ask(&target.name, asking).await?;
    let (mut head, body) = reply.into_parts();
    head.headers = headers::downwards(head.headers);
    let ticket = ticket.watched(visit.watch());
    // What a 304 says of its length is that of a body which it does not have: of one that has ended hyper
    // would leave it out. HTTP/2 keeps it, and takes no such body.
    let tells_length = head.status == StatusCode::NOT_MODIFIED && version == Version::HTTP_11;
    let body = if tells_length && head.headers.contains_key(header::CONTENT_LENGTH) {
        Body::new(StreamBody::new(stream::empty()))
    } else {
        Body::new(Relay::new(body, None, target.idle, ticket))
    };
    Ok(Response::from_parts(head, body))
}

/// Who serves a route that is no chat: the models are those of whoever answers chats; the rest goes
/// to an upstream. None of it goes to our own trainer, which takes orders there, and has what other
/// agents said: its key is ours, not the callers'.
fn target(
    shared: &Shared,
    agent: &AgentId,
    method: &Method,
    route: &PathAndQuery,
) -> Result<Arc<Upstream>, Refusal> {
    let is_models = route.path() == "/v1/models" && *method == Method::GET;
    let targets = shared.upstreams.targets(&shared.serving, agent);
    let takes = |it: &&Arc<Upstream>| is_models || it.capabilities.takes_everything;
    let mut able = targets.iter().filter(takes);
    let suited = able
        .clone()
        .find(|target| is_models || target.capabilities.suits(route));
    suited.or_else(|| able.next()).cloned().ok_or_else(|| {
        if is_models || !shared.upstreams.has_policy(agent) {
            return shared.upstreams.nobody(agent).into();
        }
        Refusal::NotFound {
            method: method.to_string(),
            path: route.path().to_owned(),
        }
    })
}

/// The route below `/v1/`, or why there is none.
fn route_of(request: &Request<Incoming>) -> Result<PathAndQuery, Refusal> {
    let route = request.uri().path_and_query();
    let route = route.filter(|route| route.path().starts_with("/v1/"));
    route.cloned().ok_or_else(|| Refusal::NotFound {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
    })
}
