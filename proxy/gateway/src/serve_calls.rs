//! Routes that another room serves: its call is read, and its answer written.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use serde_json::Value;
use tower::Service;
use tracing::{Span, field::display};

use crate::{
    auth::Caller,
    body::Body,
    identity,
    respond::{GatewayError, json_response},
    route::FEEDBACK,
    services::{self, Call, ServiceError, Services},
};

/// Hands calls to [`Services`].
#[derive(Debug, Clone)]
pub(crate) struct ServeCalls(pub Services);

// === impl ServeCalls ===

impl ServeCalls {
    async fn serve(self, request: Request<Bytes>) -> Result<Response<Body>, GatewayError> {
        let (head, raw) = request.into_parts();
        let caller = Caller::of(&head.extensions)?;
        let agent = identity::agent_of(&head.headers, &caller)?;
        Span::current().record("agent", display(&agent));
        let service: Option<Arc<dyn services::Service>> = match head.uri.path() {
            FEEDBACK => self.0.feedback,
            _ => self.0.train_step,
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
}

impl Service<Request<Bytes>> for ServeCalls {
    type Response = Response<Body>;
    type Error = GatewayError;
    type Future = BoxFuture<'static, Result<Response<Body>, GatewayError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(self.clone().serve(request))
    }
}
