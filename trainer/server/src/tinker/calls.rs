//! The calls of models: each goes into its model's lane and is answered with a promise.

use std::sync::Arc;

use axum::{
    Json as Reply,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use metaclaw_trainer_api::tinker::{
    ModelId, PROTOBUF, RequestId, TinkerSessionId,
    json::{
        CreateModel, ForwardBackward, GetInfo, LoadWeights, LoraConfig, ModelData, ModelInfo,
        OptimStep, OptimizerConfig, Promise, SaveForSampler, SaveWeights, UnloadModel,
    },
};

use super::{
    about::About,
    asked::{self, Asked, ParsedPass},
    body::{self, Json},
    futures::{Found, PromiseOpening, PromiseOutcome},
    lane::NoPlace,
    registry::{Data, ModelCall, SessionModel, WeightsLoad, Work},
    work,
};
use crate::{error::ApiError, fields::cut, state::TrainerApp};

type Answer = Result<Reply<Promise>, ApiError>;

/// `POST create_model`.
pub(crate) async fn create_model(
    State(app): State<TrainerApp>,
    Json { body, sent }: Json<CreateModel>,
) -> Answer {
    app.host.load_base(&body.base_model).await?;
    check_optimizer(body.optimizer_config.as_ref())?;
    let about = about(&body.lora_config.unwrap_or_default())?;
    let seed = body.lora_config.and_then(|lora| lora.seed);
    let id = model_id(&body.session_id, body.model_seq_id)?;
    let work = Work::Create {
        seed: seed.map(i64::cast_unsigned),
    };
    let model = SessionModel::new(id, body.session_id, body.user_metadata);
    model.about.set(about);
    begin(&app, model, Asked { work, sent })
}

fn about(lora: &LoraConfig) -> Result<About, ApiError> {
    let about = About::from(lora);
    if about.targets().is_empty() {
        let text = "lora_config trains nothing: at least one of train_attn, train_mlp and train_unembed is true";
        return Err(ApiError::field("lora_config", text));
    }
    Ok(about)
}

fn check_optimizer(config: Option<&OptimizerConfig>) -> Result<(), ApiError> {
    match config {
        Some(config) if config.kind != "adamw" => {
            let text = format!("optimizer_config.type is {:?}: adamw", cut(&config.kind));
            Err(ApiError::unsupported("optimizer_config.type", text))
        }
        _ => Ok(()),
    }
}

fn model_id(session: &TinkerSessionId, n: u32) -> Result<ModelId, ApiError> {
    ModelId::of(session, n).map_err(|error| ApiError::field("session_id", error.to_string()))
}

/// A model with its first call.
fn begin(app: &TrainerApp, model: SessionModel, first: Asked) -> Answer {
    let promise = promise(&model.id, 0)?;
    let (model, is_new) = app.tinker.registry.add_model(model)?;
    if is_new {
        let work = work::run(app.clone(), Arc::clone(&model));
        app.tinker.tasks.spawn(work);
    }
    put(app, &model, 0, promise, first)
}

/// `POST load_weights`: creates a model, or loads into one.
pub(crate) async fn load_weights(
    State(app): State<TrainerApp>,
    Json { body, sent }: Json<LoadWeights>,
) -> Answer {
    check_optimizer(body.optimizer_config.as_ref())?;
    let load = WeightsLoad {
        path: body.path,
        optimizer: body.optimizer,
    };
    let asked = |work| Asked { work, sent };
    match (body.model_id, body.session_id, body.model_seq_id) {
        (Some(id), None, None) => call(&app, &id, body.seq_id, asked(Work::Load(load))),
        (None, Some(session), Some(n)) => {
            if let Some(base) = &body.base_model {
                app.host.load_base(base).await?;
            }
            let model = SessionModel::new(model_id(&session, n)?, session, body.user_metadata);
            begin(&app, model, asked(Work::CreateFrom(load)))
        }
        _ => {
            let text = "load_weights takes session_id and model_seq_id, or model_id and seq_id";
            Err(ApiError::field("session_id", text))
        }
    }
}

/// `POST forward_backward` in protobuf, or in JSON as SDK 0.24 and older send it.
pub(crate) async fn forward_backward(
    State(app): State<TrainerApp>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Answer {
    match body::media(&headers).as_str() {
        PROTOBUF => {
            let done = tokio::task::spawn_blocking(move || asked::from_proto(&bytes)).await;
            let done = done.map_err(|error| ApiError::internal(format!("reading: {error}")))?;
            let ParsedPass { id, seq, asked } = done?;
            call(&app, &id, Some(seq), asked)
        }
        "application/json" => from_json(&app, bytes, false).await,
        other => {
            let text = format!(
                "content-type is {:?}: {PROTOBUF} or application/json",
                cut(other)
            );
            Err(ApiError::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
        }
    }
}

/// `POST forward` of SDK 0.24 and older.
pub(crate) async fn forward(State(app): State<TrainerApp>, bytes: Bytes) -> Answer {
    from_json(&app, bytes, true).await
}

async fn from_json(app: &TrainerApp, bytes: Bytes, forward_only: bool) -> Answer {
    let Json { body, sent } = body::read_json::<ForwardBackward>(bytes).await?;
    let input = body.forward_backward_input;
    let work = Work::Train {
        data: Data::Json(input.data),
        loss_fn: input.loss_fn,
        config: Ok(input.loss_fn_config.unwrap_or_default()),
        forward_only,
    };
    call(app, &body.model_id, body.seq_id, Asked { work, sent })
}

/// `POST optim_step`.
pub(crate) async fn optim_step(
    State(app): State<TrainerApp>,
    Json { body, sent }: Json<OptimStep>,
) -> Answer {
    let adam = match (body.adam_params, body.optimizer_params) {
        (_, Some(other)) => Err(format!(
            "optimizer_params.type is {:?}: only AdamW is built, send adam_params",
            cut(&other.kind)
        )),
        (adam, None) => Ok(adam.unwrap_or_default()),
    };
    let work = Work::Step(adam);
    call(&app, &body.model_id, body.seq_id, Asked { work, sent })
}

/// `POST save_weights`.
pub(crate) async fn save_weights(
    State(app): State<TrainerApp>,
    Json { body, sent }: Json<SaveWeights>,
) -> Answer {
    let work = Work::Save {
        path: body.path,
        overwrite: body.overwrite,
        user_metadata: body.user_metadata,
    };
    call(&app, &body.model_id, body.seq_id, Asked { work, sent })
}

/// `POST save_weights_for_sampler`.
pub(crate) async fn save_for_sampler(
    State(app): State<TrainerApp>,
    Json { body, sent }: Json<SaveForSampler>,
) -> Answer {
    let work = Work::SaveForSampler {
        path: body.path,
        sampler: body.sampling_session_seq_id,
    };
    call(&app, &body.model_id, body.seq_id, Asked { work, sent })
}

fn promise(model: &ModelId, seq: u32) -> Result<Promise, ApiError> {
    let id: Result<RequestId, _> = format!("{model}:{seq}").parse();
    Ok(Promise {
        request_id: id.map_err(|error| ApiError::field("model_id", error.to_string()))?,
        model_id: Some(model.clone()),
        sample_sequence_ids: None,
    })
}

/// Puts a call into its model's lane.
fn call(app: &TrainerApp, id: &ModelId, seq: Option<u32>, asked: Asked) -> Answer {
    let model = app.tinker.registry.model(id)?;
    let seq = seq.unwrap_or_else(|| model.lane.behind_all());
    let promise = promise(id, seq)?;
    put(app, &model, seq, promise, asked)
}

fn put(app: &TrainerApp, model: &SessionModel, seq: u32, promise: Promise, asked: Asked) -> Answer {
    let Asked { work, sent } = asked;
    let futures = &app.tinker.futures;
    let request = promise.request_id.clone();
    // This comes before the room check, because a repeated call already has its room.
    if let PromiseOpening::Known = futures.open(promise.clone(), sent.hash)? {
        return Ok(Reply(promise));
    }
    let placed = app
        .tinker
        .room(sent.n_bytes, model.lane.waits_for(seq))
        .and_then(|room| {
            let call = ModelCall {
                request: request.clone(),
                work,
                room,
            };
            model
                .lane
                .put(seq, call)
                .map_err(|why| no_place(model, seq, why))
        });
    if let Err(error) = placed {
        futures.forget(&request);
        return Err(error);
    }
    Ok(Reply(promise))
}

fn no_place(model: &SessionModel, seq: u32, why: NoPlace) -> ApiError {
    match why {
        NoPlace::Taken => ApiError::gone(format!(
            "call {seq} of model {} was executed, and its result is no longer kept",
            model.id
        )),
        NoPlace::Full => ApiError::busy(format!("too many calls of model {} wait", model.id)),
        NoPlace::Closed => work::ended(model),
    }
}

/// `POST get_info`; while a model is being loaded, the call waits.
pub(crate) async fn get_info(
    State(app): State<TrainerApp>,
    Json { body, .. }: Json<GetInfo>,
) -> Result<Reply<ModelInfo>, ApiError> {
    let model = app.tinker.registry.model(&body.model_id)?;
    if model.about.get().is_none() {
        let first = promise(&model.id, 0)?.request_id;
        let found = app
            .tinker
            .futures
            .wait(&first, app.tinker.limits.hold)
            .await;
        if let Found::Done(outcome) = &found
            && let PromiseOutcome::Failed(failed) = outcome.as_ref()
        {
            return Err(ApiError::bad(failed.error.clone()));
        }
    }
    let about = model.about.get().ok_or_else(|| {
        ApiError::unavailable(format!("model {} is still being loaded", model.id))
    })?;
    let base = app.host.base().to_owned();
    Ok(Reply(ModelInfo {
        model_id: model.id.clone(),
        model_data: ModelData {
            arch: Some(app.host.family().to_owned()),
            model_name: Some(base.clone()),
            tokenizer_id: Some(app.host.model_folder().display().to_string()),
        },
        is_lora: Some(true),
        lora_rank: Some(about.rank),
        model_name: Some(base),
        optimizer_config: Some(OptimizerConfig::default()),
        warning: None,
    }))
}

/// `POST unload_model`: releases a model immediately.
pub(crate) async fn unload_model(
    State(app): State<TrainerApp>,
    Json { body, sent }: Json<UnloadModel>,
) -> Answer {
    let promise = Promise {
        request_id: format!("{}:unload", body.model_id)
            .parse()
            .map_err(|error| ApiError::field("model_id", format!("{error}")))?,
        model_id: Some(body.model_id.clone()),
        sample_sequence_ids: None,
    };
    if let PromiseOpening::New = app.tinker.futures.open(promise.clone(), sent.hash)? {
        if let Some(model) = app.tinker.registry.remove_model(&body.model_id) {
            work::close(&app, &model);
        }
        let done = serde_json::to_value(&body);
        let done = done.map_err(|error| ApiError::internal(format!("writing: {error}")))?;
        let futures = &app.tinker.futures;
        futures.finish(&promise.request_id, PromiseOutcome::Json(done));
    }
    Ok(Reply(promise))
}
