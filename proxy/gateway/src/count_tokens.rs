//! `POST /v1/messages/count_tokens`, with which Claude Code and others decide when to compact.
//!
//! It goes to an upstream that has Anthropic's API. Any other server has no such route, and would get the conversation
//! needlessly. In that case the policy model's tokenizer counts if that model answers this agent's chats, and otherwise
//! the count is an estimate. The header `x-metaclaw-token-count` says which of these counted.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
    uri::PathAndQuery,
};
use metaclaw_dialects::{
    estimate,
    translate::{self, Direction},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    auth::caller::Caller,
    body::Body,
    failure::Failure,
    passthrough::{Asked, relayed},
    respond::{GatewayError, json_response},
    routing::{self, Upstreams},
    services::ServiceError,
    upstream::{Credentials, Outgoing, Sent, TOKENIZE, Upstream, UpstreamBody},
};

const COUNTED_BY: HeaderName = HeaderName::from_static("x-metaclaw-token-count");
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest list of ids that is read, in bytes.
const MAX_IDS: usize = 32 << 20;

pub(crate) async fn count_tokens(
    upstreams: Arc<Upstreams>,
    request: Request<Bytes>,
) -> Result<Response<Body>, GatewayError> {
    Caller::from_extensions(request.extensions())?.refuse_stored(request.body(), "")?;
    let Asked {
        route,
        head,
        body,
        agent,
        metrics,
    } = Asked::new(request)?;
    let targets = upstreams.targets(&agent);
    let policy = targets.iter().find(|target| target.is_policy());
    let is_policys = targets.first().is_some_and(|first| first.is_policy());
    let counts = |asked: &&Arc<Upstream>| !is_policys && asked.capabilities.counts_tokens();
    if let Some(target) = targets.iter().find(counts) {
        let outgoing = Outgoing {
            method: Method::POST,
            route,
            headers: head.headers,
            body: Sent::Chat(vec![body.clone()]),
        };
        let asking = pin!(routing::pass(&upstreams, target, outgoing));
        let mut reply = metrics.ask(&target.name, asking).await?;
        if !lacks_route(&mut reply).await {
            return Ok(relayed(reply, target, head.version));
        }
        tracing::info!(
            upstream = target.name,
            "this upstream has no route that counts tokens: it is not asked to count for an hour"
        );
        target.capabilities.lacks_count();
    }
    let conversation = read(&body)?;
    let counted = match policy {
        Some(policy) => counted_by(policy, &conversation).await,
        None => None,
    };
    let (n_tokens, by) = match counted {
        Some(n_tokens) => (n_tokens, "policy"),
        None => (estimated(&conversation), "estimate"),
    };
    let mut response = json_response(StatusCode::OK, &json!({ "input_tokens": n_tokens }));
    let headers = response.headers_mut();
    headers.insert(COUNTED_BY, HeaderValue::from_static(by));
    Ok(response)
}

/// Returns whether a reply says that the route does not exist, and not that a model is missing.
async fn lacks_route(reply: &mut Response<UpstreamBody>) -> bool {
    let status = reply.status();
    let is_missing = matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
    );
    if !is_missing {
        return false;
    }
    let text = reply.body_mut().peek().await;
    Failure::classify(status.as_u16(), &text) != Some(Failure::ModelNotFound)
}

fn read(body: &[u8]) -> Result<Value, ServiceError> {
    let conversation: Result<Value, _> = serde_json::from_slice(body);
    let wrong = match conversation {
        Ok(conversation) if conversation["messages"].is_array() => return Ok(conversation),
        Ok(_) => "messages is no list: a conversation is needed".to_owned(),
        Err(error) => format!("the request body is no JSON: {error}"),
    };
    Err(ServiceError {
        status: StatusCode::BAD_REQUEST,
        message: wrong,
    })
}

/// Returns the policy model's count, or `None` if it cannot count, for example an image.
async fn counted_by(policy: &Upstream, conversation: &Value) -> Option<u64> {
    let chat = translate::request(Direction::MessagesToChat, conversation).ok()?;
    let asked = json!({ "messages": chat["messages"], "tools": chat["tools"] });
    let json = HeaderValue::from_static("application/json");
    let outgoing = Outgoing {
        method: Method::POST,
        route: PathAndQuery::from_static(TOKENIZE),
        headers: HeaderMap::from_iter([(header::CONTENT_TYPE, json)]),
        body: Sent::Chat(vec![asked.to_string().into()]),
    };
    let shown = Credentials {
        key: None,
        passes_callers: false,
    };
    let answer = timeout(DEADLINE, async {
        let mut reply = policy.send(outgoing, shown).await.ok()?;
        let is_success = reply.status().is_success();
        let read = reply.body_mut().read_whole(MAX_IDS, policy.idle).await.ok();
        read.filter(|_| is_success)
    });
    let answer: Value = serde_json::from_slice(&answer.await.ok()??).ok()?;
    answer["count"].as_u64()
}

fn estimated(conversation: &Value) -> u64 {
    let messages = conversation["messages"].as_array();
    let n_messages = messages.map_or(0, Vec::len);
    let said =
        ["system", "messages", "tools"].map(|field| estimate::model_bytes(&conversation[field]));
    let n_tokens = estimate::tokens(said.iter().sum(), n_messages);
    n_tokens.max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_goes_by_what_a_model_reads() {
        let words = |n: usize| {
            estimated(&json!({ "messages": [{ "role": "user", "content": "word ".repeat(n) }] }))
        };
        assert!((480..540).contains(&words(400)), "{}", words(400));
        assert!(words(800) > words(400) * 19 / 10);
        let with = |more: Value| {
            let mut conversation = json!({ "messages": [{ "role": "user", "content": "hi" }] });
            let fields = conversation.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            estimated(&conversation)
        };
        let plain = with(json!({}));
        assert!(with(json!({ "system": "Be brief. ".repeat(10) })) >= plain + 25);
        let tool = json!({ "name": "look", "description": "d".repeat(400), "input_schema": {} });
        assert!(with(json!({ "tools": [tool] })) >= plain + 100);
        let metadata = json!({ "metadata": { "user_id": "x".repeat(999) } });
        assert_eq!(with(metadata), plain);
        let image =
            json!({ "type": "image", "source": { "type": "base64", "data": "A".repeat(1 << 20) } });
        let image = json!([{ "role": "user", "content": [image] }]);
        assert!((1_600..1_700).contains(&estimated(&json!({ "messages": image }))));
        let thought =
            json!({ "type": "thinking", "thinking": "long", "signature": "s".repeat(999) });
        let thought = json!([{ "role": "assistant", "content": [thought] }]);
        assert!(estimated(&json!({ "messages": thought })) < 10);
    }
}
