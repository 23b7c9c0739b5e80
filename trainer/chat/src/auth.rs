//! Authentication: one key, compared in constant time.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::Response,
};
use metaclaw_trainer_api::ApiKey;
use subtle::ConstantTimeEq;

use crate::error::ApiError;

/// The prefix that Tinker's SDK requires of every key: `tml-KEY` is this server's KEY.
const TINKER: &str = "tml-";

/// Accepts a request that carries the key as `Authorization: Bearer` or `X-API-Key`.
///
/// Without a configured key everyone may call. In that case `main` listens only on loopback.
///
/// # Errors
/// Answers 401.
pub async fn require_key(
    State(key): State<Option<ApiKey>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(key.as_ref(), request.headers())?;
    Ok(next.run(request).await)
}

fn check(key: Option<&ApiKey>, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(key) = key else { return Ok(()) };
    let given = given_key(headers).ok_or_else(|| {
        ApiError::unauthorized("no key was given: send Authorization: Bearer KEY")
    })?;
    // The timing may reveal only the length.
    let is_key = |text: &str| bool::from(text.as_bytes().ct_eq(key.expose().as_bytes()));
    if is_key(given) || given.strip_prefix(TINKER).is_some_and(is_key) {
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
