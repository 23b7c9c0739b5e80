//! The calls of models: each goes into its model's lane and is answered with a promise.

use std::{fmt::Display, sync::Arc};

use axum::{
    Json as Reply,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use metaclaw_trainer_api::{
    LossConfig,
    tinker::{
        ModelId, PROTOBUF, TinkerSessionId,
        json::{
            CreateModel, ForwardBackward, GetInfo, LoadWeights, ModelData, ModelInfo, OptimStep,
            OptimizerConfig, Promise, SaveForSampler, SaveWeights, UnloadModel,
        },
        proto::{ProtoForwardBackward, Setting, decoded_size},
    },
};
use prost::{DecodeError, Message as _};

use super::{
    body::{self, Call, Sent, check_size},
    futures::{Found, PromiseOpening, PromiseOutcome},
    lane::NoPlace,
    registry::{Data, ModelCall, SessionModel, WeightsLoad, Work},
    stored::About,
    work,
};
use crate::error::Result;
use crate::{
    blocking::blocking,
    error::ApiError,
    fields::{cut, parsed},
    state::TrainerApp,
};

type Answer = Result<Reply<Promise>>;

struct Asked {
    work: Work,
    sent: Sent,
}

struct ParsedPass {
    id: ModelId,
    seq: u32,
    asked: Asked,
}

pub(crate) async fn create_model(Call { app, body, sent }: Call<CreateModel>) -> Answer {
    app.host.load_base(&body.base_model).await?;
    check_optimizer(body.optimizer_config.as_ref())?;
    let lora = body.lora_config.unwrap_or_default();
    let about = About::from(&lora);
    if about.targets().is_empty() {
        let text = "lora_config trains nothing: at least one of train_attn, train_mlp and train_unembed is true";
        return Err(ApiError::field("lora_config", text));
    }
    let id = model_id(&body.session_id, body.model_seq_id)?;
    let seed = lora.seed.map(i64::cast_unsigned);
    let model = SessionModel::new(id, body.session_id, body.user_metadata);
    model.about.set(about);
    let work = Work::Create { seed };
    begin(&app, model, Asked { work, sent })
}

fn check_optimizer(config: Option<&OptimizerConfig>) -> Result<()> {
    match config {
        Some(config) if config.kind != "adamw" => {
            let text = format!("optimizer_config.type is {:?}: adamw", cut(&config.kind));
            Err(ApiError::unsupported("optimizer_config.type", text))
        }
        _ => Ok(()),
    }
}

fn model_id(session: &TinkerSessionId, n: u32) -> Result<ModelId> {
    ModelId::of(session, n).map_err(|error| ApiError::field("session_id", error.to_string()))
}

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
pub(crate) async fn load_weights(Call { app, body, sent }: Call<LoadWeights>) -> Answer {
    check_optimizer(body.optimizer_config.as_ref())?;
    let (path, optimizer) = (body.path, body.optimizer);
    let load = WeightsLoad { path, optimizer };
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
            let pass = blocking("reading", move || from_protobuf(&bytes)).await?;
            call(&app, &pass.id, Some(pass.seq), pass.asked)
        }
        "application/json" => from_json(&app, bytes, false).await,
        other => {
            let given = cut(other);
            let text = format!("content-type is {given:?}: {PROTOBUF} or application/json");
            Err(ApiError::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
        }
    }
}

/// `POST forward` of SDK 0.24 and older.
pub(crate) async fn forward(State(app): State<TrainerApp>, bytes: Bytes) -> Answer {
    from_json(&app, bytes, true).await
}

/// Reads a protobuf body. Errors in its data become part of the result.
///
/// # Errors
/// 400 for one that is none, or names no model or number. What is wrong with its data its result says.
fn from_protobuf(bytes: &[u8]) -> Result<ParsedPass> {
    let broken = |error: DecodeError| {
        ApiError::bad(format!("the body is no ForwardBackwardRequest: {error}"))
    };
    let n_bytes = decoded_size(bytes).map_err(broken)?;
    check_size(n_bytes)?;
    let request = ProtoForwardBackward::decode(bytes).map_err(broken)?;
    // A writer may order the entries of a map differently when it writes again, so they are sorted here.
    let hash = blake3::hash(&request.encode_to_vec());
    let id = parsed("model_id", &request.model_id)?;
    let seq = u32::try_from(request.seq_id).ok().filter(|seq| *seq > 0);
    let seq = seq.ok_or_else(|| {
        let text = format!("seq_id is {}: 1 or more", request.seq_id);
        ApiError::field("seq_id", text)
    })?;
    let work = Work::Train {
        config: loss_config(&request),
        data: Data::Proto(request.data),
        loss_fn: request.loss_fn,
        forward_only: request.forward_only,
    };
    let sent = Sent { hash, n_bytes };
    let asked = Asked { work, sent };
    Ok(ParsedPass { id, seq, asked })
}

/// The second map has all settings, if it is there.
fn loss_config(request: &ProtoForwardBackward) -> Result<LossConfig, String> {
    if request.loss_fn_config_v2.is_empty() {
        return Ok(request.loss_fn_config.clone());
    }
    let settings = request.loss_fn_config_v2.iter();
    let read = settings.map(|(name, value)| match &value.value {
        Some(Setting::Number(number)) => Ok((name.clone(), *number)),
        Some(Setting::Text(text)) => {
            let (name, text) = (cut(name), cut(text));
            Err(format!("loss_fn_config.{name} is {text:?}: a number"))
        }
        None => Err(format!("loss_fn_config.{} has no value", cut(name))),
    });
    read.collect()
}

async fn from_json(app: &TrainerApp, bytes: Bytes, forward_only: bool) -> Answer {
    let (body, sent) = body::read_json::<ForwardBackward>(bytes).await?;
    let input = body.forward_backward_input;
    let work = Work::Train {
        data: Data::Json(input.data),
        loss_fn: input.loss_fn,
        config: Ok(input.loss_fn_config.unwrap_or_default()),
        forward_only,
    };
    call(app, &body.model_id, body.seq_id, Asked { work, sent })
}

pub(crate) async fn optim_step(Call { app, body, sent }: Call<OptimStep>) -> Answer {
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

pub(crate) async fn save_weights(Call { app, body, sent }: Call<SaveWeights>) -> Answer {
    let work = Work::Save {
        path: body.path,
        overwrite: body.overwrite,
        user_metadata: body.user_metadata,
    };
    call(&app, &body.model_id, body.seq_id, Asked { work, sent })
}

pub(crate) async fn save_for_sampler(Call { app, body, sent }: Call<SaveForSampler>) -> Answer {
    let (path, sampler) = (body.path, body.sampling_session_seq_id);
    let work = Work::SaveForSampler { path, sampler };
    call(&app, &body.model_id, body.seq_id, Asked { work, sent })
}

fn promise(model: &ModelId, call: impl Display) -> Result<Promise> {
    Ok(Promise {
        request_id: parsed("model_id", &format!("{model}:{call}"))?,
        model_id: Some(model.clone()),
        sample_sequence_ids: None,
    })
}

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
    let room = app.tinker.room(sent.n_bytes, model.lane.waits_for(seq));
    let placed = room.and_then(|room| {
        let call = ModelCall {
            request: request.clone(),
            work,
            room,
        };
        let placed = model.lane.put(seq, call);
        placed.map_err(|why| no_place(model, seq, why))
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
pub(crate) async fn get_info(Call { app, body, .. }: Call<GetInfo>) -> Result<Reply<ModelInfo>> {
    let model = app.tinker.registry.model(&body.model_id)?;
    if model.about.get().is_none() {
        let first = promise(&model.id, 0)?.request_id;
        let tinker = &app.tinker;
        if let Found::Done(outcome) = tinker.futures.wait(&first, tinker.limits.hold).await
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
pub(crate) async fn unload_model(Call { app, body, sent }: Call<UnloadModel>) -> Answer {
    let promise = promise(&body.model_id, "unload")?;
    if let PromiseOpening::New = app.tinker.futures.open(promise.clone(), sent.hash)? {
        if let Some(model) = app.tinker.registry.remove_model(&body.model_id) {
            work::close(&app, &model);
        }
        let done = PromiseOutcome::json(&body)?;
        app.tinker.futures.finish(&promise.request_id, done);
    }
    Ok(Reply(promise))
}
