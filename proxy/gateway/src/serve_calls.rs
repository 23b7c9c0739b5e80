//! Routes that another crate serves: the request is read here, and its answer written.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value, json};
use tracing::{Span, field::display};

use crate::{
    auth::caller::Caller,
    body::Body,
    identity,
    respond::{GatewayError, json_response},
    rollouts::{RolloutError, Rollouts, close_rollout, is_about_rollout, serve_rollouts},
    route::{FEEDBACK, MEMORY, ROLLOUTS, is_at},
    services::{Call, MemoryCall, ServiceError, Services},
};

/// Passes a call to one of [`Services`]. Feedback on a rollout closes it.
pub(crate) async fn serve_call(
    services: Services,
    rollouts: Option<Arc<Rollouts>>,
    request: Request<Bytes>,
) -> Result<Response<Body>, GatewayError> {
    let path = request.uri().path();
    if is_at(path, MEMORY) {
        return serve_memory(services, request).await;
    }
    if is_at(path, ROLLOUTS) {
        return serve_rollouts(rollouts, services, request).await;
    }
    let (head, raw) = request.into_parts();
    let caller = Caller::from_extensions(&head.extensions)?;
    let body = parse_body(&raw)?;
    if head.uri.path() == FEEDBACK && is_about_rollout(&body) {
        let rollouts = rollouts.ok_or(RolloutError::Unrecorded)?;
        let closed = close_rollout(&rollouts, &caller, body).await?;
        return Ok(json_response(StatusCode::OK, &closed));
    }
    let agent = identity::agent_of(&head.headers, &caller)?;
    Span::current().record("agent", display(&agent));
    let service = match head.uri.path() {
        FEEDBACK => services.feedback,
        _ => services.train_step,
    };
    let service = service.ok_or_else(|| ServiceError {
        status: StatusCode::SERVICE_UNAVAILABLE,
        message: format!("{} is not served: nothing here learns", head.uri.path()),
    })?;
    let answer = service.call(Call { agent, body }).await?;
    Ok(json_response(StatusCode::OK, &answer))
}

/// Passes on a call of the memory API. Its errors have the form of the Python original: `{"detail": ".."}`.
async fn serve_memory(
    services: Services,
    request: Request<Bytes>,
) -> Result<Response<Body>, GatewayError> {
    let (head, raw) = request.into_parts();
    let caller = Caller::from_extensions(&head.extensions)?;
    let agent = identity::named_agent(&head.headers, &caller)?;
    let answer = async {
        let memory = services.memory.ok_or_else(|| ServiceError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: "memory not enabled".to_owned(),
        })?;
        let path = head.uri.path().strip_prefix(MEMORY).unwrap_or_default();
        let fields = if head.method == Method::POST {
            body_fields(&raw)?
        } else {
            query_fields(head.uri.query().unwrap_or_default())
        };
        let call = MemoryCall {
            agent,
            method: head.method,
            path: path.trim_matches('/').to_owned(),
            fields,
        };
        memory.call(call).await
    };
    Ok(match answer.await {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(error) => json_response(error.status, &json!({"detail": error.message})),
    })
}

fn body_fields(raw: &[u8]) -> Result<Map<String, Value>, ServiceError> {
    match parse_body(raw)? {
        Value::Null => Ok(Map::new()),
        Value::Object(fields) => Ok(fields),
        _ => Err(ServiceError {
            status: StatusCode::BAD_REQUEST,
            message: "the request body must be a JSON object".to_owned(),
        }),
    }
}

fn query_fields(query: &str) -> Map<String, Value> {
    let fields = url::form_urlencoded::parse(query.as_bytes());
    fields
        .map(|(name, value)| (name.into_owned(), value.into()))
        .collect()
}

fn parse_body(raw: &[u8]) -> Result<Value, ServiceError> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| ServiceError {
        status: StatusCode::BAD_REQUEST,
        message: format!("the request body is no JSON: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_from_the_query_or_the_body() {
        #[rustfmt::skip]
        let cases = [
            ("q=dark%20mode+%E5%A4%9C&scope=user%3Aa&limit=3", json!({"q": "dark mode 夜", "scope": "user:a", "limit": "3"})),
            ("scope=", json!({"scope": ""})),
            ("q=a%&r=%4&s=%+5&t=%zz%41é", json!({"q": "a%", "r": "%4", "s": "% 5", "t": "%zzAé"})),
        ];
        for (query, expected) in cases {
            assert_eq!(Value::Object(query_fields(query)), expected);
        }
        for (body, expected) in [
            ("", Ok(0)),
            (r#"{"a":1}"#, Ok(1)),
            ("[]", Err(400)),
            ("{", Err(400)),
        ] {
            let read = body_fields(body.as_bytes()).map(|fields| fields.len());
            assert_eq!(
                read.map_err(|error| error.status.as_u16()),
                expected,
                "{body}"
            );
        }
    }
}
