//! Routes that another crate serves: the request is read here, and its answer written.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::Value;
use tracing::{Span, field::display};

use crate::{
    auth::Caller,
    body::Body,
    identity,
    respond::{GatewayError, json_response},
    route::FEEDBACK,
    services::{Call, ServiceError, Services},
};

/// Passes a call to one of [`Services`].
pub(crate) async fn serve_call(
    services: Services,
    request: Request<Bytes>,
) -> Result<Response<Body>, GatewayError> {
    let (head, raw) = request.into_parts();
    let caller = Caller::from_extensions(&head.extensions)?;
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
    let body = if raw.is_empty() {
        Value::Null
    } else {
        let body = serde_json::from_slice(&raw);
        body.map_err(|error| ServiceError {
            status: StatusCode::BAD_REQUEST,
            message: format!("the request body is no JSON: {error}"),
        })?
    };
    let answer = service.call(Call { agent, body }).await?;
    Ok(json_response(StatusCode::OK, &answer))
}
