//! Which models and adapters there are.

use axum::{
    Json,
    extract::{Path, State},
};
use metaclaw_trainer_api::{
    AdapterName,
    wire::{AdaptersReply, UnloadReply},
};
use serde::Serialize;

use crate::{error::ApiError, state::App};

/// `GET /v1/models`.
#[derive(Debug, Serialize)]
pub(crate) struct ModelsReply {
    object: &'static str,
    data: Vec<ModelEntry>,
}

#[derive(Debug, Serialize)]
struct ModelEntry {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// The base of an adapter, as vLLM shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
}

/// `GET /v1/models`: the base, then every adapter.
pub(crate) async fn list(State(app): State<App>) -> Result<Json<ModelsReply>, ApiError> {
    let base = app.host.base();
    let entry = |id: String, parent: Option<String>| ModelEntry {
        id,
        object: "model",
        created: 0,
        owned_by: "metaclaw",
        max_model_len: parent.is_none().then(|| app.host.context()),
        parent,
    };
    let adapters = app.host.adapter_names()?.into_iter();
    let adapters = adapters.map(|name| entry(name.as_str().to_owned(), Some(base.to_owned())));
    // Without a model there are the adapters alone.
    let own = (!base.is_empty()).then(|| entry(base.to_owned(), None));
    let data = own.into_iter().chain(adapters).collect();
    Ok(Json(ModelsReply {
        object: "list",
        data,
    }))
}

/// `GET /v1/adapters`.
pub(crate) async fn adapters(State(app): State<App>) -> Result<Json<AdaptersReply>, ApiError> {
    let adapters = app.host.adapters().await?;
    Ok(Json(AdaptersReply { adapters }))
}

/// `DELETE /v1/adapters/{name}`.
pub(crate) async fn unload(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<UnloadReply>, ApiError> {
    let name: AdapterName = name
        .parse()
        .map_err(|error| ApiError::field("name", format!("{error}")))?;
    let unloaded = app.host.unload(name).await?;
    Ok(Json(UnloadReply { unloaded }))
}
