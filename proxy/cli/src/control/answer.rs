//! What every handler of the control listener knows, and how it answers.

use std::sync::Arc;

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;

use crate::app::App;

/// What every handler knows.
#[derive(Clone)]
pub(super) struct Control {
    pub(super) app: Arc<App>,
    pub(super) token: Arc<str>,
}

/// An answer that says what is wrong.
pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

pub(super) type Answer<T> = Result<Json<T>, Failure>;

pub(super) fn answer<T>(given: Result<T, Failure>) -> Answer<T> {
    given.map(Json)
}

pub(super) fn failed(error: impl std::error::Error) -> Failure {
    Failure(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

pub(super) fn refused(error: &anyhow::Error) -> Failure {
    Failure(StatusCode::CONFLICT, format!("{error:#}"))
}

/// Runs what touches the file system where blocking is allowed.
pub(super) async fn on_files<T: Serialize + Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Response {
    answer(spawned(work).await).into_response()
}

pub(super) async fn spawned<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()));
    done?.map_err(|error| refused(&error))
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}
