//! Weights: which serve, what the next step is, what adapters say.

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_learner::EvalWanted;

use super::{
    answer::{Control, Failure, answer, failed, refused},
    replay,
    wire::AdapterChoice,
};
use crate::replays::ReplayAsked;

pub(super) fn routes() -> Router<Control> {
    Router::new()
        .route("/adapters", post(adapters))
        .route("/use_adapter", post(use_adapter))
        .route("/roll_back", post(roll_back))
        .route("/train_step", post(train_step))
        .route("/dry_run", post(dry_run))
        .route("/turn_preview", post(turn_preview))
        .route("/eval", post(eval))
        .route("/replay", post(replay))
}

async fn adapters(State(control): State<Control>) -> Response {
    let adapters = control.app.adapters().await;
    let failed = |error: anyhow::Error| Failure(StatusCode::BAD_GATEWAY, format!("{error:#}"));
    answer(adapters.map_err(failed)).into_response()
}

async fn roll_back(State(control): State<Control>, Json(of): Json<Option<AgentId>>) -> Response {
    let choice = control.app.roll_back(of).await;
    answer(choice.map_err(|error| refused(&error))).into_response()
}

async fn use_adapter(
    State(control): State<Control>,
    Json(choice): Json<AdapterChoice>,
) -> Response {
    let chosen = control.app.use_adapter(&choice).await;
    answer(chosen.map_err(|error| refused(&error))).into_response()
}

async fn train_step(State(control): State<Control>, Json(of): Json<Option<AgentId>>) -> Response {
    let step = control.app.train_step(of).await;
    answer(step.map_err(failed)).into_response()
}

async fn dry_run(State(control): State<Control>, Json(of): Json<Option<AgentId>>) -> Response {
    answer(control.app.learner.dry_run(of).await.map_err(failed)).into_response()
}

async fn turn_preview(State(control): State<Control>, Json(id): Json<TurnId>) -> Response {
    let preview = control.app.learner.turn_preview(id).await;
    answer(preview.map_err(failed)).into_response()
}

async fn eval(State(control): State<Control>, Json(wanted): Json<EvalWanted>) -> Response {
    let report = control.app.learner.evaluate(&wanted).await;
    answer(report.map_err(failed)).into_response()
}

async fn replay(State(control): State<Control>, Json(asked): Json<ReplayAsked>) -> Response {
    let lines = replay::stream(control.app, asked);
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(lines)).into_response()
}
