//! Answers outside any route: for unknown routes, wrong methods, and panics.

use std::{any::Any, panic::AssertUnwindSafe};

use axum::{
    extract::Request,
    http::{Method, StatusCode, Uri},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt as _;
use metaclaw_trainer_terms::ErrorCode;
use tokio::time::Instant;

use crate::error::ApiError;

/// Answers 404.
pub async fn unknown_route(method: Method, uri: Uri) -> ApiError {
    let text = format!("{method} {} is no route of this server", uri.path());
    ApiError::not_found(ErrorCode::UnknownRoute, text)
}

/// Answers 405.
pub async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let text = format!("{} does not take {method}", uri.path());
    ApiError::status(StatusCode::METHOD_NOT_ALLOWED, text)
}

/// Turns a panic in a handler, which is a defect of this program, into an error. The log has all details, and the
/// answer has none.
pub async fn catch_panic(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let begun = Instant::now();
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => {
            let (status, ms) = (response.status().as_u16(), begun.elapsed().as_millis());
            tracing::debug!(%method, path, status, ms, "answered");
            response
        }
        Err(panic) => {
            tracing::error!(%method, path, "panic: {}", panic_text(panic.as_ref()));
            ApiError::internal(format!(
                "{method} {path} failed inside the server; its log says where"
            ))
            .into_response()
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
