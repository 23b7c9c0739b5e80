//! Reading JSON bodies, with errors that name the field.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
};
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// A JSON body.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        check_content_type(request.headers())?;
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| unreadable(rejection))?;
        parse(&bytes).map(Self)
    }
}

/// Only `application/json`: what a web page can send to a listener on loopback without asking the
/// browser first is text and forms, and must not reach a handler.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let media = given.split(';').next().unwrap_or("").trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::status(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("content-type is {given:?}: application/json is needed"),
    ))
}

fn unreadable(rejection: BytesRejection) -> ApiError {
    let message = rejection.body_text();
    let status = rejection.into_response().status();
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return ApiError::status(status, "the body is larger than this server takes")
            .with_code("body_too_large");
    }
    ApiError::status(status, message)
}

/// Reads `bytes`; an error says where.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_syntax() || inner.is_eof() {
            return ApiError::bad(format!("the body is no JSON: {inner}"))
                .with_code("invalid_json");
        }
        match path.as_str() {
            "." => ApiError::bad(inner.to_string()),
            field => ApiError::field(field, format!("{field}: {inner}")),
        }
    })?;
    reader
        .end()
        .map_err(|error| ApiError::bad(format!("the body is no JSON: {error}")))?;
    Ok(value)
}
