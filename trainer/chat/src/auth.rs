//! Who may call: one key, compared in constant time.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use metaclaw_trainer_api::ApiKey;
use subtle::ConstantTimeEq;

use crate::error::ApiError;

/// Lets a request through that carries the key as `Authorization: Bearer` or `X-API-Key`.
///
/// Without a configured key everyone may call; `main` then listens on loopback only.
pub async fn require_key(
    State(key): State<Option<ApiKey>>,
    request: Request,
    next: Next,
) -> Response {
    match check(key.as_ref(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(key: Option<&ApiKey>, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(key) = key else { return Ok(()) };
    let given = given_key(headers).ok_or_else(|| {
        ApiError::unauthorized("no key was given: send Authorization: Bearer KEY")
    })?;
    // The length alone may show in the timing.
    if bool::from(given.as_bytes().ct_eq(key.expose().as_bytes())) {
        return Ok(());
    }
    Err(ApiError::unauthorized("the given key is not this server's"))
}

fn given_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, key)| key.trim());
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}
