//! The REST routes of training: runs, gradients, steps, adapters, checkpoints.
//!
//! Losses are sums over tokens and datums, as in Tinker; `total_tokens` lets a client compute means. Nothing is
//! repeated or deduplicated here: a client that got no answer finds out from the checkpoints what was done.

use std::{path::Path as FsPath, str::FromStr};

use axum::{
    Json,
    extract::{Path, State},
};
use metaclaw_trainer_api::{
    AdapterName, CheckpointName, NameError, RunId,
    wire::{
        AdaptersReply, CheckpointLoadReply, CheckpointLoadRequest, CheckpointSaveReply,
        CheckpointSaveRequest, CheckpointsReply, CloseRunReply, CloseRunRequest, CreateReply,
        CreateRequest, DeleteReply, ForwardBackwardReply, ForwardBackwardRequest, ForwardReply,
        ForwardRequest, LoadAdapterReply, LoadAdapterRequest, OptimStepReply, OptimStepRequest,
        PruneReply, PruneRequest, SaveWeightsReply, SaveWeightsRequest, UnloadAdapterRequest,
        UnloadReply,
    },
};
use serde::Deserialize;
use serde_json::Value;

use crate::error::Result;
use crate::{
    error::ApiError,
    fields::parsed,
    host::Host,
    json::{Asked, ReadApiJson, check_values, parse},
    serving::DefaultAdapter,
    state::TrainerApp,
};

type Reply<T> = Result<Json<T>>;

fn ok() -> String {
    "ok".to_owned()
}

pub(crate) async fn create(Asked(app, request): Asked<CreateRequest>) -> Reply<CreateReply> {
    app.host.load_base(&request.base_model).await?;
    app.host.create_run(request).await.map(Json)
}

pub(crate) async fn close(Asked(app, request): Asked<CloseRunRequest>) -> Reply<CloseRunReply> {
    app.host.close_run(request.session_id).await?;
    Ok(Json(CloseRunReply { status: ok() }))
}

pub(crate) async fn forward(Asked(app, request): Asked<ForwardRequest>) -> Reply<ForwardReply> {
    app.host.forward(request).await.map(Json)
}

pub(crate) async fn forward_backward(
    Asked(app, request): Asked<ForwardBackwardRequest>,
) -> Reply<ForwardBackwardReply> {
    app.host.forward_backward(request).await.map(Json)
}

pub(crate) async fn optim_step(
    Asked(app, request): Asked<OptimStepRequest>,
) -> Reply<OptimStepReply> {
    app.host.optim_step(request).await.map(Json)
}

/// Saves the run's adapter; requests without a model's name use it from now on.
pub(crate) async fn save_weights(
    Asked(app, request): Asked<SaveWeightsRequest>,
) -> Reply<SaveWeightsReply> {
    let run = request.session_id;
    let name: AdapterName = name_of(&app, &run, request.name).await?;
    DefaultAdapter::check_free(&name, &app.host)?;
    let reply = app.host.save_adapter(run, name.clone()).await?;
    app.models.saved(name);
    Ok(Json(reply))
}

/// The request as clients send it. The fork's client may leave the name out.
#[derive(Debug, Deserialize)]
pub(crate) struct SaveCheckpointBody {
    session_id: RunId,
    #[serde(default)]
    name: String,
    #[serde(default)]
    manifest: Value,
}

impl ReadApiJson for SaveCheckpointBody {
    const ROUTE: &'static str = "POST /v1/checkpoint/save";

    fn read(body: &[u8]) -> Result<Self> {
        check_values(body)?;
        parse(body)
    }
}

pub(crate) async fn save_checkpoint(
    Asked(app, body): Asked<SaveCheckpointBody>,
) -> Reply<CheckpointSaveReply> {
    let request = CheckpointSaveRequest {
        name: name_of(&app, &body.session_id, body.name).await?,
        session_id: body.session_id,
        manifest: body.manifest,
    };
    app.host.save_checkpoint(request).await.map(Json)
}

async fn name_of<T: FromStr<Err = NameError>>(
    app: &TrainerApp,
    run: &RunId,
    given: String,
) -> Result<T> {
    let name = match given.as_str() {
        "" => format!("{run}-{}", app.host.step_of(run.clone()).await?),
        _ => given,
    };
    parsed("name", &name)
}

pub(crate) async fn load_checkpoint(
    Asked(app, request): Asked<CheckpointLoadRequest>,
) -> Reply<CheckpointLoadReply> {
    let name = checkpoint_name(&app.host, &request.path)?;
    let loaded = app.host.load_checkpoint(request.session_id, name, true);
    loaded.await.map(Json)
}

/// A checkpoint of this server, by its name or by the path that checkpoint/save returned. No other path is opened.
fn checkpoint_name(host: &Host, path: &str) -> Result<CheckpointName> {
    let folder = host.checkpoint_folder();
    let own = FsPath::new(path).strip_prefix(&folder).ok();
    let name = own.and_then(|rest| rest.to_str()).unwrap_or(path);
    name.parse().map_err(|_| {
        let folder = folder.display();
        let text = format!(
            "path {path:?} is no checkpoint of this server: a checkpoint's name, or a path that checkpoint/save returned, as in {folder}/NAME"
        );
        ApiError::field("path", text)
    })
}

pub(crate) async fn checkpoints(State(app): State<TrainerApp>) -> Reply<CheckpointsReply> {
    let checkpoints = app.host.checkpoints().await?;
    Ok(Json(CheckpointsReply { checkpoints }))
}

pub(crate) async fn delete_checkpoint(
    State(app): State<TrainerApp>,
    Path(name): Path<String>,
) -> Reply<DeleteReply> {
    app.host.delete_checkpoint(parsed("name", &name)?).await?;
    Ok(Json(DeleteReply { status: ok() }))
}

pub(crate) async fn prune(Asked(app, request): Asked<PruneRequest>) -> Reply<PruneReply> {
    let default = app.models.last_saved();
    let deleted = app.host.prune(request.keep, default).await?;
    Ok(Json(PruneReply { deleted }))
}

pub(crate) async fn adapters(State(app): State<TrainerApp>) -> Reply<AdaptersReply> {
    let adapters = app.host.adapters().await?;
    Ok(Json(AdaptersReply { adapters }))
}

pub(crate) async fn load_adapter(
    Asked(app, request): Asked<LoadAdapterRequest>,
) -> Reply<LoadAdapterReply> {
    let name = &request.lora_name;
    let folder = app.host.adapter_folder();
    check_path(name, request.lora_path.as_deref(), &folder)?;
    let loaded = app.host.load_adapter(name).await?;
    if let Some(behind) = &app.inference {
        behind.link.load_adapter(name).await?;
    }
    Ok(Json(loaded))
}

/// vLLM opens any path; here the path must be the adapter's own.
fn check_path(name: &AdapterName, path: Option<&str>, folder: &FsPath) -> Result<()> {
    let own = folder.join(name.as_str());
    match path {
        None | Some("") => Ok(()),
        Some(path) if FsPath::new(path) == own => Ok(()),
        Some(path) => {
            let own = own.display();
            let text = format!(
                "lora_path {path:?} is not where adapter {name} is kept: {own}, or leave it out"
            );
            Err(ApiError::field("lora_path", text))
        }
    }
}

pub(crate) async fn unload_adapter(
    Asked(app, request): Asked<UnloadAdapterRequest>,
) -> Json<UnloadReply> {
    let name = &request.lora_name;
    let mut unloaded = app.host.unload(name);
    if let Some(behind) = &app.inference {
        unloaded |= behind.link.unload(name).await;
    }
    Json(UnloadReply { unloaded })
}

pub(crate) async fn delete_adapter(
    State(app): State<TrainerApp>,
    Path(name): Path<String>,
) -> Reply<DeleteReply> {
    let name: AdapterName = parsed("name", &name)?;
    app.models.check_unused(&name)?;
    app.host.delete_adapter(name).await?;
    Ok(Json(DeleteReply { status: ok() }))
}
