//! Reads JSON bodies, with errors that name the field.

use std::borrow::Cow;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::{HeaderMap, StatusCode, header},
};
use metaclaw_trainer_api::wire::TokenizeRequest;
use metaclaw_trainer_terms::{ErrorCode, json};
use serde::de::DeserializeOwned;

use crate::{bodies::Hold, error::ApiError, fields};

/// Bodies up to this size are parsed on the receiving thread. Larger ones are parsed on a blocking thread, so that no
/// reply waits for them. At 200 MB/s this takes a millisecond.
const READ_AT_ONCE: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

/// The body of a route.
pub(crate) trait ReadBody: Sized + Send + 'static {
    /// Its fields, and how each is handled.
    /// The heading of its table in `data/fields.md`.
    const ROUTE: &'static str;

    /// Reads the supported ones.
    ///
    /// # Errors
    /// Answers 400, which names the field.
    fn read(body: &[u8]) -> Result<Self, ApiError>;
}

impl ReadBody for TokenizeRequest {
    const ROUTE: &'static str = "POST /tokenize";

    fn read(body: &[u8]) -> Result<Self, ApiError> {
        parse(body)
    }
}

impl<S: Send + Sync, T: ReadBody> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        read_with(request, state, read).await.map(Self)
    }
}

/// Returns what `read` makes of a request's body, which must be JSON.
///
/// # Errors
/// Answers 415 for another type, 413 for a body that is too large, and the error of `read`.
pub async fn read_with<S: Send + Sync, T: Send + 'static>(
    mut request: Request,
    state: &S,
    read: fn(&[u8]) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    check_content_type(request.headers())?;
    let _until_it_is_read = request.extensions_mut().remove::<Hold>();
    let body = Bytes::from_request(request, state)
        .await
        .map_err(|rejection| ApiError::status(rejection.status(), rejection.body_text()))?;
    let n_bytes = body.len();
    let read = move || read(&mended(&body));
    if n_bytes <= READ_AT_ONCE {
        return read();
    }
    let done = tokio::task::spawn_blocking(read).await;
    done.map_err(|error| ApiError::internal(format!("reading failed: {error}")))?
}

/// Returns a body whose lone surrogates are U+FFFD. A client that cut a text inside an emoji sends it in every later
/// request of the conversation.
pub fn mended(body: &[u8]) -> Cow<'_, [u8]> {
    match str::from_utf8(body).map(json::mended) {
        Ok(Cow::Owned(mended)) => Cow::Owned(mended.into()),
        Ok(Cow::Borrowed(_)) | Err(_) => Cow::Borrowed(body),
    }
}

/// Only `application/json` is accepted. Text and forms, which a web page can send to loopback without asking the
/// browser first, must not reach a handler.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE);
    let given = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let media = given.split(';').next().unwrap_or("").trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let text = format!(
        "content-type is {:?}: application/json is needed",
        fields::cut(given)
    );
    Err(ApiError::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
}

/// The most values of a chat's body: a small body of empty lists would take gigabytes of memory.
pub const MOST_VALUES: usize = 1 << 20;

/// Counts the values of a JSON text, one for each comma and each opening bracket.
pub fn count_values(json: &[u8]) -> usize {
    let (mut n, mut is_quoted) = (1, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' => drop(bytes.next()),
            b'[' | b'{' | b',' if !is_quoted => n += 1,
            _ => {}
        }
    }
    n
}

/// Checks the number of a body's values before it is parsed.
///
/// # Errors
/// Answers 400.
pub fn check_values(body: &[u8]) -> Result<(), ApiError> {
    // A shorter body cannot have as many.
    if body.len() > MOST_VALUES && count_values(body) > MOST_VALUES {
        let text = format!(
            "the body has more than {MOST_VALUES} values (numbers, texts, lists and objects)"
        );
        return Err(ApiError::bad(text));
    }
    Ok(())
}

/// Reads a body. Each of its fields must be one of its route.
///
/// # Errors
/// Answers 400, which names the field.
pub(crate) fn read<T: ReadBody>(body: &[u8]) -> Result<T, ApiError> {
    check_values(body)?;
    fields::check(body, fields::of_route(T::ROUTE))?;
    T::read(body)
}

/// Parses `bytes`, which must be an object. An error names the field. Fields that `T` does not have are ignored.
///
/// # Errors
/// Answers 400, which names the field.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // serde would treat a list as the fields in their order.
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
    ApiError::bad(format!("the body is no JSON that can be read: {why}"))
        .with_code(ErrorCode::InvalidJson)
}

/// Names the field and what is wrong with it. A byte position would not help anybody.
fn wrong_value(path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    if let Some((given, allowed)) = expected(text) {
        let field = if path == "." { "the body" } else { path };
        let given = fields::cut(given);
        return ApiError::field(field, format!("{field} is {given}, allowed: {allowed}"));
    }
    // For these errors, the path is that of the enclosing object.
    let named = ["missing field `", "unknown field `"];
    let named = named.iter().find_map(|begins| text.strip_prefix(begins));
    if let Some((name, _)) = named.and_then(|rest| rest.split_once('`')) {
        let field = match path {
            "." => name.to_owned(),
            path if path.ends_with(name) => path.to_owned(),
            path => format!("{path}.{name}"),
        };
        let error = ApiError::field(field, text);
        return if text.starts_with("unknown") {
            error.with_code(ErrorCode::UnknownParameter)
        } else {
            error
        };
    }
    if text.starts_with("unknown variant") {
        return ApiError::unsupported(path, format!("{path}: {text}"));
    }
    match path {
        "." => ApiError::bad(text),
        field if text.starts_with(field) => ApiError::field(field, text),
        field => ApiError::field(field, format!("{field}: {text}")),
    }
}

/// Returns the given and the expected value of serde's ``invalid type: string "x", expected u32``, whose types are
/// Rust's.
fn expected(text: &str) -> Option<(&str, &str)> {
    // serde treats a list as the fields of an object.
    if text.starts_with("invalid length ") && text.contains("expected struct ") {
        return Some(("a list", "an object"));
    }
    let mismatch = ["invalid type: ", "invalid value: "];
    let mismatch = mismatch
        .iter()
        .find_map(|begins| text.strip_prefix(begins))?;
    let (given, expected) = mismatch.rsplit_once(", expected ")?;
    let given = match given {
        "map" => "an object",
        "sequence" => "a list",
        given => match given.split_once('`') {
            Some((_, value)) => value.trim_end_matches('`'),
            None => given.strip_prefix("string ").unwrap_or(given),
        },
    };
    let allowed = match expected {
        "usize" | "u64" | "u32" | "u16" | "u8" => "a whole number, 0 or more",
        "isize" | "i64" | "i32" | "i16" | "i8" => "a whole number",
        "f64" | "f32" | "a JSON number" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") || other.contains("tagged enum ") => "an object",
        other => other,
    };
    Some((given, allowed))
}
