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
            .map_err(unreadable)?;
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

/// Reads `bytes`, an object; an error says where.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // A list would be taken for the fields in their order.
    if let Some(first) = bytes.trim_ascii_start().first()
        && *first != b'{'
    {
        return Err(no_json("an object is needed, as in {\"name\": \"value\"}"));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            wrong_value(&path, &inner)
        } else {
            no_json(&inner.to_string())
        }
    })?;
    reader.end().map_err(|error| no_json(&error.to_string()))?;
    Ok(value)
}

fn no_json(why: &str) -> ApiError {
    ApiError::bad(format!("the body is no JSON that can be read: {why}")).with_code("invalid_json")
}

/// The field and what is wrong with it; where it stands in the bytes helps nobody.
fn wrong_value(path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    match path {
        "." => ApiError::bad(text),
        field if text.starts_with(field) => ApiError::field(field, text),
        field => ApiError::field(field, format!("{field}: {text}")),
    }
}
