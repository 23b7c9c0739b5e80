//! Tinker's protocol below `/api/v1/`, for the SDK and its programs, with MetaClaw's engine.
//!
//! `calls` puts each call of a model into its `lane`, where they are executed by their numbers (`work`) whatever order
//! they arrive in; `futures` keeps promises and results; `sampling` draws; `sessions` are
//! the clients, whose end gives their models back; `listing` shows runs and checkpoints, whose names and descriptions on
//! disk are `stored`'s. All calls of the engine go through the host, as for the REST API's routes.

mod body;
mod calls;
pub(crate) mod futures;
mod lane;
mod listing;
pub(crate) mod registry;
mod sampling;
mod sessions;
pub(crate) mod shared;
pub(crate) mod stored;
mod work;

use axum::{
    Router, middleware,
    routing::{delete, get, post},
};

use crate::state::TrainerApp;

/// The routes, without the key.
pub(crate) fn router(app: &TrainerApp) -> Router<TrainerApp> {
    let large = Router::new()
        .route("/telemetry", post(sessions::telemetry))
        .route("/forward_backward", post(calls::forward_backward))
        .route("/forward", post(calls::forward))
        .route("/asample", post(sampling::asample))
        .route_layer(middleware::from_fn_with_state(app.clone(), body::read_body));
    let small = Router::new()
        .route("/client/config", post(sessions::client_config))
        .route("/client/dynamic_config", post(sessions::dynamic_config))
        .route("/create_session", post(sessions::create_session))
        .route("/session_heartbeat", post(sessions::heartbeat))
        .route("/sessions/{id}/finish", post(sessions::finish))
        .route("/cancel_future", post(sessions::cancel))
        .route("/create_model", post(calls::create_model))
        .route("/load_weights", post(calls::load_weights))
        .route("/unload_model", post(calls::unload_model))
        .route("/optim_step", post(calls::optim_step))
        .route("/save_weights", post(calls::save_weights))
        .route("/save_weights_for_sampler", post(calls::save_for_sampler))
        .route("/create_sampling_session", post(sampling::create))
        .route("/weights_info", post(listing::weights_info))
        .route("/retrieve_future", post(sessions::retrieve))
        .route("/get_info", post(calls::get_info))
        .route_layer(middleware::from_fn_with_state(
            app.clone(),
            body::read_small,
        ));
    let gets = Router::new()
        .route("/healthz", get(sessions::healthz))
        .route("/get_server_capabilities", get(sessions::capabilities))
        .route("/samplers/{id}", get(sampling::sampler))
        .route("/training_runs", get(listing::runs))
        .route("/training_runs/{id}", get(listing::run))
        .route("/training_runs/{id}/checkpoints", get(listing::of_run))
        .route(
            "/training_runs/{id}/checkpoints/{kind}/{name}",
            delete(listing::delete),
        )
        .route("/checkpoints", get(listing::checkpoints));
    Router::new().nest("/api/v1", large.merge(small).merge(gets))
}
