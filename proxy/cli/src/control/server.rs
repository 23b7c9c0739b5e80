//! The control listener of the running process.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use metaclaw_chat::{TurnId, now_ms};
use metaclaw_gateway::ConfigError;
use metaclaw_schedule::SavedState;
use metaclaw_turns::{Fingerprint, LogCounts, MAX_IMPORT_BYTES, RestoredTurn};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    answer::{Answer, Control, Failure, answer, failed, on_files, refused},
    export, lessons, training,
    wire::{KeyChange, TurnsQuery},
};
use crate::{
    app::App,
    compare::{Question, Wanted, pick},
    privacy::SwitchChange,
    report::{self, Period},
    rollouts::Import,
};

/// A body of rollouts: what a file may have, written anew.
const MAX_IMPORT: usize = 2 * MAX_IMPORT_BYTES;

/// Answers on `listener` until `ending`.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    token: String,
    ending: CancellationToken,
) -> std::io::Result<()> {
    let control = Control {
        app,
        token: token.into(),
    };
    let routes = Router::new()
        .route("/status", post(status))
        .route("/stop", post(stop))
        .route("/switch", post(switch))
        .route("/turns", post(turns))
        .route("/turn", post(turn))
        .route("/export", post(exported))
        .route(
            "/import",
            post(import).layer(DefaultBodyLimit::max(MAX_IMPORT)),
        )
        .route(
            "/restore",
            post(restore).layer(DefaultBodyLimit::max(MAX_IMPORT)),
        )
        .route("/lacks", post(lacks))
        .route("/raise_counts", post(raise_counts))
        .route("/report", post(report_of))
        .route("/compare", post(compare))
        .route("/compare_plan", post(compare_plan))
        .route("/scheduler", post(scheduler))
        .route("/key", post(key))
        .merge(lessons::routes())
        .merge(training::routes())
        .route_layer(middleware::from_fn_with_state(control.clone(), admit))
        .with_state(control);
    axum::serve(listener, routes)
        .with_graceful_shutdown(ending.cancelled_owned())
        .await
}

/// Lets nobody in who does not show the token.
async fn admit(State(control): State<Control>, request: Request, next: Next) -> Response {
    if shows(request.headers(), &control.token) {
        next.run(request).await
    } else {
        let message = "the admin token of run.json is asked for here".to_owned();
        Failure(StatusCode::UNAUTHORIZED, message).into_response()
    }
}

fn shows(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|it| it.to_str().ok());
    let given = given.and_then(|it| it.strip_prefix("Bearer "));
    given.is_some_and(|given| given.as_bytes().ct_eq(token.as_bytes()).into())
}

async fn status(State(control): State<Control>) -> Response {
    Json(control.app.status().await).into_response()
}

async fn stop(State(control): State<Control>) -> Json<Value> {
    control.app.stop();
    Json(json!({"stopping": true}))
}

async fn switch(State(control): State<Control>, Json(change): Json<SwitchChange>) -> Response {
    on_files(move || control.app.switch(&change)).await
}

async fn turns(State(control): State<Control>, Json(query): Json<TurnsQuery>) -> Response {
    let turns = control.app.log.list(query.into()).await;
    answer(turns.map_err(failed)).into_response()
}

async fn turn(State(control): State<Control>, Json(id): Json<TurnId>) -> Response {
    let turn = control.app.log.get(id).await.map_err(failed);
    answer(turn).into_response()
}

async fn exported(State(control): State<Control>) -> Response {
    let lines = export::stream(&control.app);
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(lines)).into_response()
}

async fn import(State(control): State<Control>, Json(import): Json<Import>) -> Response {
    let imported = control.app.import(import).await;
    answer(imported.map_err(|error| refused(&error))).into_response()
}

async fn restore(State(control): State<Control>, Json(turns): Json<Vec<RestoredTurn>>) -> Response {
    answer(control.app.log.restore(turns).await.map_err(failed)).into_response()
}

async fn lacks(State(control): State<Control>, Json(turns): Json<Vec<Fingerprint>>) -> Response {
    answer(control.app.log.lacks(turns).await.map_err(failed)).into_response()
}

async fn raise_counts(State(control): State<Control>, Json(counts): Json<LogCounts>) -> Response {
    let raised = control.app.log.raise_counts(counts).await;
    answer(raised.map_err(failed)).into_response()
}

async fn report_of(State(control): State<Control>, Json(period): Json<Period>) -> Response {
    let report = report::gather(&control.app.sources(), period, now_ms()).await;
    answer(report.map_err(|error| refused(&error))).into_response()
}

async fn compare(State(control): State<Control>, Json(question): Json<Question>) -> Response {
    let App {
        library, serving, ..
    } = &*control.app;
    let answered = control.app.comparer.answer(library, serving, &question);
    answer(answered.await.map_err(|error| refused(&error))).into_response()
}

async fn compare_plan(State(control): State<Control>, Json(wanted): Json<Wanted>) -> Response {
    let app = &*control.app;
    let plan = async {
        let mut questions = wanted.questions;
        if questions.is_empty() {
            questions = pick(&app.log, &wanted.agent, wanted.n).await?;
        }
        let asked = (&wanted.agent, questions);
        app.comparer.plan(&app.library, &app.serving, asked)
    };
    answer(plan.await.map_err(|error| refused(&error))).into_response()
}

async fn scheduler(State(control): State<Control>) -> Answer<SavedState> {
    let App { log, schedule, .. } = &*control.app;
    // A turn may have ended since the last look.
    let last_main_ms = log.last_main_ms().await.map_err(failed)?;
    schedule.window(now_ms(), last_main_ms);
    Ok(Json(schedule.save(now_ms())))
}

async fn key(State(control): State<Control>, Json(change): Json<KeyChange>) -> Response {
    let KeyChange { name, key } = change;
    let changed = control.app.authenticator.set_key(&name, key);
    let refused = |error: ConfigError| Failure(StatusCode::CONFLICT, error.to_string());
    answer(changed.map_err(refused)).into_response()
}
