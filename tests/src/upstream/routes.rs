//! Chooses the answer by the route.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Uri, header},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    api::Api,
    body::{Ending, Watch, body},
    notes::{Received, Shared, lock},
    play::{Asked, Call, MODEL, PROMPT_TOKENS, Play, Reply, Said},
};

pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    raw: Bytes,
) -> Response {
    let api = Api::of_path(uri.path());
    let path = uri.path().to_owned();
    let request: Value = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    let model = request["model"].as_str().unwrap_or_default();
    let n_before = n_asked(&shared, &path, model);
    lock(&shared.received).push(Received {
        uri,
        headers: headers.clone(),
        body: raw,
    });
    match api {
        Some(api) => {
            let play = (shared.script)(&Asked {
                path: &path,
                model,
                n_before,
                headers: &headers,
                body: &request,
            });
            perform(api, play, &request, &shared).await
        }
        None => beside(&path),
    }
}

/// Returns the number of requests on this path for a reply by this model so far.
fn n_asked(shared: &Shared, path: &str, model: &str) -> usize {
    let is_same = |received: &&Received| {
        let body: Value = serde_json::from_slice(&received.body).unwrap_or(Value::Null);
        received.uri.path() == path && body["model"] == model
    };
    lock(&shared.received).iter().filter(is_same).count()
}

async fn perform(api: Api, play: Play, request: &Value, shared: &Arc<Shared>) -> Response {
    let number = lock(&shared.received).len();
    let (said, without) = match play {
        Play::Text(text) | Play::Cut(text) | Play::Stall(text) => (Said::Text(text), None),
        Play::Thought(thought, text) => (Said::Thought(thought, text), None),
        Play::Tool { then, .. } if api.has_result(request) => (Said::Text(then), None),
        Play::Tool { command, .. } => (Said::Call(Call::exec(command)), None),
        Play::Call { name, arguments } => {
            let arguments = arguments.to_owned();
            let call = Call {
                number,
                name,
                arguments,
            };
            (Said::Call(call), None)
        }
        Play::Without(part, text) => (Said::Text(text), Some(part)),
        Play::Refuse(failure) => {
            let limits = api.limits(failure);
            return json(failure.status(), limits, &api.error(failure));
        }
        // The message is that of common server frameworks.
        Play::Unknown => return json(404, &[], &json!({"detail": "Not Found"})),
    };
    let reply = Reply {
        said,
        without,
        number,
    };
    let ending = match play {
        Play::Cut(_) => Ending::Cut,
        Play::Stall(_) => Ending::Silence,
        _ => Ending::Whole,
    };
    if request["stream"] == true {
        let mut events = api.events(&reply);
        if ending != Ending::Whole {
            events.truncate(events.len() / 2);
        }
        let events = events.into_iter().map(Bytes::from).collect();
        let events = body(events, ending, shared);
        return respond(200, "text/event-stream", &[], events);
    }
    let whole = api.whole(&reply);
    match ending {
        Ending::Whole => json(200, &[], &whole),
        Ending::Cut => {
            let whole = Bytes::from(whole.to_string());
            let length = whole.len().to_string();
            let half = whole.slice(..whole.len() / 2);
            let torn = body(vec![half], ending, shared);
            let length = [("content-length", length.as_str())];
            respond(200, "application/json", &length, torn)
        }
        Ending::Silence => {
            let _watch = Watch::new(shared);
            std::future::pending().await
        }
    }
}

/// Answers routes that are not chats.
fn beside(path: &str) -> Response {
    match path {
        "/v1/models" => {
            // The body has the fields of both providers, of which each package reads its own.
            let model = json!({"id": MODEL, "object": "model", "created": 1, "owned_by": "nobody",
                "type": "model", "display_name": "Mock", "created_at": "2026-01-01T00:00:00Z"});
            let list = json!({"object": "list", "data": [model], "has_more": false,
                "first_id": MODEL, "last_id": MODEL});
            json(200, &[], &list)
        }
        "/v1/messages/count_tokens" => json(200, &[], &json!({"input_tokens": PROMPT_TOKENS})),
        "/v1/embeddings" => {
            let vector =
                json!({"object": "embedding", "index": 0, "embedding": [0.5, -0.25, 1e-7]});
            let usage = json!({"prompt_tokens": 3, "total_tokens": 3});
            let list = json!({"object": "list", "data": [vector], "model": MODEL, "usage": usage});
            json(200, &[], &list)
        }
        _ => {
            let message = format!("{path} is not in the script");
            json(
                404,
                &[],
                &json!({"error": {"message": message, "type": "not_found"}}),
            )
        }
    }
}

fn json(status: u16, headers: &[(&str, &str)], value: &Value) -> Response {
    let body = Body::from(value.to_string());
    respond(status, "application/json", headers, body)
}

fn respond(status: u16, kind: &str, headers: &[(&str, &str)], body: Body) -> Response {
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body).expect("a plain response")
}
