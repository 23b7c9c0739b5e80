//! Which models and adapters there are.

use std::path::Path as FsPath;

use axum::{
    Json,
    extract::{Path, State},
};
use metaclaw_trainer_api::{
    AdapterName,
    wire::{
        AdaptersReply, DeleteReply, LoadAdapterReply, LoadAdapterRequest, UnloadAdapterRequest,
        UnloadReply,
    },
};
use serde::Serialize;

use crate::{error::ApiError, json::JsonBody, state::App};

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

/// `POST /v1/load_lora_adapter`.
pub(crate) async fn load(
    State(app): State<App>,
    JsonBody(request): JsonBody<LoadAdapterRequest>,
) -> Result<Json<LoadAdapterReply>, ApiError> {
    let LoadAdapterRequest {
        lora_name,
        lora_path,
    } = request;
    check_path(&lora_name, lora_path.as_deref(), &app.host.adapter_folder())?;
    app.host.load_adapter(&lora_name).await.map(Json)
}

/// vLLM opens any path; here it is the adapter's own or none.
fn check_path(name: &AdapterName, path: Option<&str>, folder: &FsPath) -> Result<(), ApiError> {
    let own = folder.join(name.as_str());
    match path {
        None | Some("") => Ok(()),
        Some(path) if FsPath::new(path) == own => Ok(()),
        Some(path) => {
            let text = format!(
                "lora_path {path:?} is not where adapter {name} is kept: {}, or leave it out",
                own.display()
            );
            Err(ApiError::field("lora_path", text))
        }
    }
}

/// `POST /v1/unload_lora_adapter`.
pub(crate) async fn unload(
    State(app): State<App>,
    JsonBody(request): JsonBody<UnloadAdapterRequest>,
) -> Json<UnloadReply> {
    let unloaded = app.host.unload(&request.lora_name);
    Json(UnloadReply { unloaded })
}

/// `DELETE /v1/adapters/{name}`.
pub(crate) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<DeleteReply>, ApiError> {
    let name: AdapterName = name
        .parse()
        .map_err(|error| ApiError::field("name", format!("{error}")))?;
    app.models.check_unused(&name)?;
    app.host.delete_adapter(name).await?;
    Ok(Json(DeleteReply {
        status: "ok".to_owned(),
    }))
}
