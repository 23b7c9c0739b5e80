//! Bodies of Tinker's routes: JSON or protobuf, uncompressed or compressed by zstd.

use std::{io::Read as _, sync::Arc};

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::Response,
};
use metaclaw_trainer_api::tinker::PROTOBUF;
use metaclaw_trainer_chat::bodies::{Hold, Largest};
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::Result;
use crate::{blocking::blocking, error::ApiError, fields::cut, json, state::TrainerApp};

/// Bodies of calls without datums or prompts.
const SMALL: usize = 64 << 10;

/// The most memory that the body of one call takes. A body of empty lists or empty datums takes 50 times its size.
const MOST_DECODED: usize = 128 << 20;

/// The memory of a JSON value in a list or an object, at most.
const VALUE: usize = 128;

type Taken = (Hold, Option<OwnedSemaphorePermit>);

/// Reads the body of a call with datums or a prompt; its place among bodies is free once it has answered.
pub(crate) async fn read_body(
    State(app): State<TrainerApp>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let (request, _until_it_is_answered) = whole(&app, request, app.tinker.limits.body).await?;
    Ok(next.run(request).await)
}

/// Reads any other body, of at most 64 KiB; its place is free once it is read.
pub(crate) async fn read_small(
    State(app): State<TrainerApp>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let (request, _) = whole(&app, request, SMALL).await?;
    Ok(next.run(request).await)
}

async fn whole(app: &TrainerApp, request: Request, most: usize) -> Result<(Request, Taken)> {
    let (head, body) = request.into_parts();
    let (bytes, hold) = app.tinker_bodies.read(body, Largest::of(most)).await?;
    let coding = head.headers.get(header::CONTENT_ENCODING);
    let coding = coding.map_or("identity", |value| value.to_str().unwrap_or("?"));
    let (bytes, unpacked) = match coding {
        "identity" => (bytes, None),
        "zstd" => {
            // The decompressed size is not known beforehand, so few bodies are decompressed in parallel.
            let turn = Arc::clone(&app.tinker.unpacking).acquire_owned().await;
            let turn = turn.map_err(|_| ApiError::unavailable("the server ends"))?;
            let plain = blocking("decompressing", move || unzstd(&bytes, most)).await?;
            (plain, Some(turn))
        }
        other => {
            let text = format!("content-encoding is {:?}: zstd or none", cut(other));
            return Err(ApiError::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
    };
    Ok((Request::from_parts(head, bytes.into()), (hold, unpacked)))
}

fn unzstd(bytes: &[u8], most: usize) -> Result<Bytes> {
    let broken = |error: std::io::Error| ApiError::bad(format!("the body is no zstd: {error}"));
    let reader = zstd::Decoder::new(bytes).map_err(broken)?;
    let mut plain = Vec::new();
    let bound = u64::try_from(most).unwrap_or(u64::MAX);
    let mut bounded = reader.take(bound.saturating_add(1));
    bounded.read_to_end(&mut plain).map_err(broken)?;
    if plain.len() > most {
        return Err(Largest::of(most).refusal);
    }
    Ok(plain.into())
}

#[derive(Debug)]
pub(crate) struct Call<T> {
    pub(crate) app: TrainerApp,
    pub(crate) body: T,
    pub(crate) sent: Sent,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Distinguishes two calls of one number.
    pub(crate) hash: blake3::Hash,
    pub(crate) n_bytes: usize,
}

/// Checks what a body takes in memory, before it is decoded.
///
/// # Errors
/// Returns 413.
pub(crate) fn check_size(n_bytes: usize) -> Result<()> {
    if n_bytes <= MOST_DECODED {
        return Ok(());
    }
    let text = format!(
        "the body takes up to {n_bytes} bytes in memory: at most {MOST_DECODED}, send fewer datums at once"
    );
    Err(ApiError::status(StatusCode::PAYLOAD_TOO_LARGE, text))
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<TrainerApp> for Call<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &TrainerApp) -> Result<Self> {
        let media = media(request.headers());
        if media != "application/json" {
            let given = cut(&media);
            let text = format!("content-type is {given:?}: application/json is needed");
            return Err(ApiError::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        let bytes = Bytes::from_request(request, app)
            .await
            .map_err(|rejection| ApiError::status(rejection.status(), rejection.body_text()))?;
        let (body, sent) = read_json(bytes).await?;
        let app = app.clone();
        Ok(Self { app, body, sent })
    }
}

/// Reads a JSON body, on a thread that may take long.
///
/// # Errors
/// Returns 400 with the field.
pub(crate) async fn read_json<T: DeserializeOwned + Send + 'static>(
    bytes: Bytes,
) -> Result<(T, Sent)> {
    let read = move || {
        let n_bytes = bytes.len() + json::count_values(&bytes) * VALUE;
        check_size(n_bytes)?;
        let body = json::parse(&json::mended(&bytes))?;
        let hash = blake3::hash(&bytes);
        Ok::<_, ApiError>((body, Sent { hash, n_bytes }))
    };
    blocking("reading", read).await
}

pub(crate) fn media(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE);
    let given = given.and_then(|value| value.to_str().ok()).unwrap_or("");
    let media = given.split(';').next().unwrap_or("");
    media.trim().to_ascii_lowercase()
}

pub(crate) fn takes_protobuf(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|media| media.contains(PROTOBUF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_its_bound_is_never_unpacked() {
        let packed = zstd::encode_all([b' '; 5000].as_slice(), 1).unwrap();
        assert!(packed.len() < 100);
        assert_eq!(unzstd(&packed, 5000).unwrap().len(), 5000);
        assert_eq!(
            unzstd(&packed, 4999).unwrap_err(),
            Largest::of(4999).refusal
        );
        assert!(unzstd(b"no zstd", 5000).is_err());
    }
}
