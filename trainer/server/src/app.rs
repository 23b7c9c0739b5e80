//! Routes and their layers.

use std::{any::Any, panic::AssertUnwindSafe};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, Method, StatusCode, Uri},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use futures_util::FutureExt as _;
use metaclaw_trainer_api::wire::{Capabilities, Health};
use tokio::time::Instant;

use crate::{
    auth, bodies, chat, error::ApiError, listing, origin, sample, state::App, tinker, tokenize,
    train,
};

/// The routes. Layers, the outermost first: a panic becomes a 500; foreign pages are refused where there is no key;
/// the key is asked for, but not by `/v1/health`; a body has bounds, and is read only then.
pub(crate) fn router(app: &App) -> Router {
    let text = Router::new()
        .route("/v1/chat/completions", post(chat::completions))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/v1/sample", post(sample::sample))
        .route_layer(middleware::from_fn_with_state(
            app.clone(),
            bodies::read_text,
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
        .route("/v1/load_lora_adapter", post(listing::load))
        .route("/v1/unload_lora_adapter", post(listing::unload))
        .route_layer(middleware::from_fn_with_state(
            app.clone(),
            bodies::read_training,
        ));
    let guarded = Router::new()
        .route("/v1/models", get(listing::list))
        .route("/v1/adapters", get(listing::adapters))
        .route("/v1/adapters/{name}", delete(listing::delete))
        .route("/v1/sampled/{id}", get(sample::sampled))
        .route("/v1/checkpoints", get(train::checkpoints))
        .route("/v1/checkpoints/{name}", delete(train::delete_checkpoint))
        .merge(text)
        .merge(training)
        .merge(tinker::router(app))
        .route_layer(middleware::from_fn_with_state(app.key(), auth::require_key));
    Router::new()
        .route("/v1/health", get(health))
        .merge(guarded)
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_route)
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(
            app.key(),
            origin::refuse_foreign_pages,
        ))
        .layer(middleware::from_fn(catch_panic))
        .layer(middleware::map_response(versioned))
        .with_state(app.clone())
}

async fn health(State(app): State<App>) -> Json<Health> {
    let step = app.host.last_step();
    let model = step.map_or("", |_| app.host.base());
    Json(Health {
        status: "healthy".to_owned(),
        gpu_count: 0,
        model: model.to_owned(),
        base_fingerprint: app.host.base_fingerprint(),
        step: step.unwrap_or(0),
        inference_backend: "builtin".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: Capabilities::builtin(),
    })
}

async fn unknown_route(method: Method, uri: Uri) -> ApiError {
    ApiError::not_found(
        "unknown_route",
        format!("{method} {} is no route of this server", uri.path()),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::status(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} does not take {method}", uri.path()),
    )
}

async fn versioned(mut response: Response) -> Response {
    let version = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));
    response.headers_mut().insert("x-metaclaw-version", version);
    response
}

/// A panic in a handler is a defect of ours: logged whole, answered without its insides.
pub(crate) async fn catch_panic(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let begun = Instant::now();
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => {
            let (status, ms) = (response.status().as_u16(), begun.elapsed().as_millis());
            tracing::debug!(%method, path, status, ms, "answered");
            response
        }
        Err(panic) => {
            tracing::error!(%method, path, "panic: {}", panic_text(panic.as_ref()));
            ApiError::internal(format!(
                "{method} {path} failed inside the server; its log says where"
            ))
            .into_response()
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
