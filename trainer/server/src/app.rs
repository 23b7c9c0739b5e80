//! Routes and their layers.

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::HeaderValue,
    middleware::{self, Next},
    response::Response,
    routing::{delete, get, post},
};
use metaclaw_trainer_api::wire::{Capabilities, Health};
use metaclaw_trainer_chat::{
    self as chat, answers,
    bodies::{Largest, admit},
};

use crate::{
    auth,
    error::Result,
    origin, sample,
    state::{self, TrainerApp},
    tinker, train,
};

/// The routes. Layers, the outermost first: a panic becomes a 500; foreign pages are refused where there is no key;
/// the key is asked for, but not by `/v1/health`; a body has bounds, and is read only then.
pub(crate) fn router(app: &TrainerApp) -> Router {
    let text = Router::new()
        .route("/v1/sample", post(sample::sample))
        .route_layer(middleware::from_fn_with_state(
            app.front.clone(),
            chat::read_text,
        ));
    let training = Router::new()
        .route("/v1/lora/create", post(train::create))
        .route("/v1/lora/close", post(train::close))
        .route("/v1/train/forward", post(train::forward))
        .route("/v1/train/forward_backward", post(train::forward_backward))
        .route("/v1/train/optim_step", post(train::optim_step))
        .route("/v1/weights/save", post(train::save_weights))
        .route("/v1/checkpoint/save", post(train::save_checkpoint))
        .route("/v1/checkpoint/load", post(train::load_checkpoint))
        .route("/v1/checkpoints/prune", post(train::prune))
        .route("/v1/load_lora_adapter", post(train::load_adapter))
        .route("/v1/unload_lora_adapter", post(train::unload_adapter))
        .route_layer(middleware::from_fn_with_state(app.clone(), read_training));
    let guarded = Router::new()
        .route("/v1/adapters", get(train::adapters))
        .route("/v1/adapters/{name}", delete(train::delete_adapter))
        .route("/v1/checkpoints", get(train::checkpoints))
        .route("/v1/checkpoints/{name}", delete(train::delete_checkpoint))
        .merge(text)
        .merge(training)
        .merge(tinker::router(app))
        .with_state(app.clone())
        .merge(chat::routes(&app.front))
        .route_layer(middleware::from_fn_with_state(app.key(), auth::require_key));
    Router::new()
        .route("/v1/health", get(health))
        .with_state(app.clone())
        .merge(guarded)
        .method_not_allowed_fallback(answers::wrong_method)
        .fallback(answers::unknown_route)
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(
            app.key(),
            origin::refuse_foreign_pages,
        ))
        .layer(middleware::from_fn(answers::catch_panic))
        .layer(middleware::map_response(versioned))
}

async fn health(State(app): State<TrainerApp>) -> Json<Health> {
    let devices = app.host.devices();
    let gpus = devices
        .iter()
        .filter(|device| device.name.starts_with("cuda"));
    let gpu_count = u32::try_from(gpus.count()).unwrap_or(u32::MAX);
    Json(Health {
        status: "healthy".to_owned(),
        gpu_count,
        devices,
        // The fork's server reports no model before a run. Ours may have been started with one.
        model: app.host.base().to_owned(),
        base_fingerprint: app.host.base_fingerprint(),
        dtype: app.host.dtype().map(|dtype| dtype.to_string()),
        context: app.context(),
        step: app.host.last_step().unwrap_or(0),
        inference_backend: if app.inference.is_some() {
            "vllm".to_owned()
        } else {
            // The fork's clients know no other word for the engine of the server itself.
            "hf".to_owned()
        },
        inference: app.inference.as_ref().map(state::Behind::health),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: Capabilities::builtin(),
    })
}

/// Reads the body of a training call. It counts until it is answered, so that batches wait in their callers' memory and
/// not in the server's.
async fn read_training(
    State(app): State<TrainerApp>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let largest = Largest::of(app.limits.text.body);
    let (request, _until_it_is_answered) = admit(&app.training_bodies, largest, request).await?;
    Ok(next.run(request).await)
}

async fn versioned(mut response: Response) -> Response {
    let version = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));
    response.headers_mut().insert("x-metaclaw-version", version);
    response
}
