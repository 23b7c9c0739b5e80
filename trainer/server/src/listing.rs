//! Lists the adapters.

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

use crate::{error::ApiError, json::ApiJson, state::TrainerApp};

/// `GET /v1/adapters`.
pub(crate) async fn adapters(
    State(app): State<TrainerApp>,
) -> Result<Json<AdaptersReply>, ApiError> {
    let adapters = app.host.adapters().await?;
    Ok(Json(AdaptersReply { adapters }))
}

/// `POST /v1/load_lora_adapter`.
pub(crate) async fn load(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<LoadAdapterRequest>,
) -> Result<Json<LoadAdapterReply>, ApiError> {
    let LoadAdapterRequest {
        lora_name,
        lora_path,
    } = request;
    check_path(&lora_name, lora_path.as_deref(), &app.host.adapter_folder())?;
    let loaded = app.host.load_adapter(&lora_name).await?;
    if let Some(behind) = &app.inference {
        behind.link.load_adapter(&lora_name).await?;
    }
    Ok(Json(loaded))
}

/// vLLM opens any path; here the path must be the adapter's own.
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
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<UnloadAdapterRequest>,
) -> Json<UnloadReply> {
    let name = &request.lora_name;
    let mut unloaded = app.host.unload(name);
    if let Some(behind) = &app.inference {
        unloaded |= behind.link.unload(name).await;
    }
    Json(UnloadReply { unloaded })
}

/// `DELETE /v1/adapters/{name}`.
pub(crate) async fn delete(
    State(app): State<TrainerApp>,
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
