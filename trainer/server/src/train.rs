//! The training routes: runs, gradients, steps, adapters, checkpoints.
//!
//! Losses are sums over tokens and datums, as in Tinker; `total_tokens` lets a client compute means. Nothing is
//! repeated or deduplicated here: a client that got no answer finds out from the checkpoints what was done.

use std::str::FromStr;

use axum::{
    Json,
    extract::{Path, State},
};
use metaclaw_trainer_api::{
    AdapterName, CheckpointName, NameError, RunId,
    wire::{
        CheckpointLoadReply, CheckpointLoadRequest, CheckpointSaveReply, CheckpointSaveRequest,
        CheckpointsReply, CloseRunReply, CloseRunRequest, CreateReply, CreateRequest, DeleteReply,
        ForwardBackwardReply, ForwardBackwardRequest, ForwardReply, ForwardRequest, OptimStepReply,
        OptimStepRequest, PruneReply, PruneRequest, SaveWeightsReply, SaveWeightsRequest,
    },
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    error::ApiError,
    fields::{self, Field},
    host::Host,
    json::{ApiJson, ReadApiJson, check_values, parse},
    models::DefaultAdapter,
    state::TrainerApp,
};

/// Opens a run. Other runs stay open.
pub(crate) async fn create(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<CreateRequest>,
) -> Result<Json<CreateReply>, ApiError> {
    app.host.load_base(&request.base_model).await?;
    app.host.create_run(request).await.map(Json)
}

/// Frees a run's memory.
pub(crate) async fn close(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<CloseRunRequest>,
) -> Result<Json<CloseRunReply>, ApiError> {
    app.host.close_run(request.session_id).await?;
    Ok(Json(CloseRunReply {
        status: "ok".to_owned(),
    }))
}

/// Computes log-probabilities without changing a gradient.
pub(crate) async fn forward(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<ForwardRequest>,
) -> Result<Json<ForwardReply>, ApiError> {
    app.host.forward(request).await.map(Json)
}

pub(crate) async fn forward_backward(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<ForwardBackwardRequest>,
) -> Result<Json<ForwardBackwardReply>, ApiError> {
    app.host.forward_backward(request).await.map(Json)
}

/// Applies gradients and clears them.
pub(crate) async fn optim_step(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<OptimStepRequest>,
) -> Result<Json<OptimStepReply>, ApiError> {
    app.host.optim_step(request).await.map(Json)
}

/// Saves the run's adapter; requests without a model's name use it from now on.
pub(crate) async fn save_weights(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<SaveWeightsRequest>,
) -> Result<Json<SaveWeightsReply>, ApiError> {
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
    const FIELDS: &'static [Field] = fields::SAVE_CHECKPOINT;

    fn read(body: &[u8]) -> Result<Self, ApiError> {
        check_values(body)?;
        parse(body)
    }
}

/// Saves adapter, optimiser and step.
pub(crate) async fn save_checkpoint(
    State(app): State<TrainerApp>,
    ApiJson(body): ApiJson<SaveCheckpointBody>,
) -> Result<Json<CheckpointSaveReply>, ApiError> {
    let name: CheckpointName = name_of(&app, &body.session_id, body.name).await?;
    let request = CheckpointSaveRequest {
        session_id: body.session_id,
        name,
        manifest: body.manifest,
    };
    app.host.save_checkpoint(request).await.map(Json)
}

/// Returns the given name, or else the run and its step.
async fn name_of<T: FromStr<Err = NameError>>(
    app: &TrainerApp,
    run: &RunId,
    given: String,
) -> Result<T, ApiError> {
    let name = match given.as_str() {
        "" => format!("{run}-{}", app.host.step_of(run.clone()).await?),
        _ => given,
    };
    name.parse()
        .map_err(|error: NameError| ApiError::field("name", error.to_string()))
}

/// Sets a run to the state of a checkpoint.
pub(crate) async fn load_checkpoint(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<CheckpointLoadRequest>,
) -> Result<Json<CheckpointLoadReply>, ApiError> {
    let name = checkpoint_name(&app.host, &request.path)?;
    app.host
        .load_checkpoint(request.session_id, name, true)
        .await
        .map(Json)
}

/// A checkpoint of this server, by its name or by the path that checkpoint/save returned. No other path is opened.
fn checkpoint_name(host: &Host, path: &str) -> Result<CheckpointName, ApiError> {
    let folder = host.checkpoint_folder();
    let own = std::path::Path::new(path).strip_prefix(&folder).ok();
    let name = own.and_then(|rest| rest.to_str()).unwrap_or(path);
    name.parse().map_err(|_| {
        let text = format!(
            "path {path:?} is no checkpoint of this server: a checkpoint's name, or a path that checkpoint/save returned, as in {}/NAME",
            folder.display()
        );
        ApiError::field("path", text)
    })
}

/// Lists every complete checkpoint, oldest first.
pub(crate) async fn checkpoints(
    State(app): State<TrainerApp>,
) -> Result<Json<CheckpointsReply>, ApiError> {
    let checkpoints = app.host.checkpoints().await?;
    Ok(Json(CheckpointsReply { checkpoints }))
}

pub(crate) async fn delete_checkpoint(
    State(app): State<TrainerApp>,
    Path(name): Path<String>,
) -> Result<Json<DeleteReply>, ApiError> {
    let name: CheckpointName = name
        .parse()
        .map_err(|error| ApiError::field("name", format!("{error}")))?;
    app.host.delete_checkpoint(name).await?;
    Ok(Json(DeleteReply {
        status: "ok".to_owned(),
    }))
}

/// Deletes checkpoints that are not needed any more.
pub(crate) async fn prune(
    State(app): State<TrainerApp>,
    ApiJson(request): ApiJson<PruneRequest>,
) -> Result<Json<PruneReply>, ApiError> {
    let deleted = app
        .host
        .prune(request.keep, app.models.last_saved())
        .await?;
    Ok(Json(PruneReply { deleted }))
}
