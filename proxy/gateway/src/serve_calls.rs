//! Routes that another crate serves: the request is read here, and its answer written.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::Value;
use tracing::{Span, field::display};

use crate::{
    auth::caller::Caller,
    body::Body,
    identity,
    memory_calls::serve_memory,
    respond::{GatewayError, json_response},
    rollouts::{RolloutError, Rollouts, close_rollout, is_about_rollout, serve_rollouts},
    route::{FEEDBACK, MEMORY, ROLLOUTS, is_at},
    services::{Call, ServiceError, Services},
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
    let body = json(&raw)?;
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

/// Reads a body, which may be empty.
fn json(raw: &[u8]) -> Result<Value, ServiceError> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| ServiceError {
        status: StatusCode::BAD_REQUEST,
        message: format!("the request body is no JSON: {error}"),
    })
}
