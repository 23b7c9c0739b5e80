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
use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_gateway::ConfigError;
use metaclaw_schedule::SavedState;
use metaclaw_turns::MAX_IMPORT_BYTES;
use serde::Serialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    export,
    wire::{AdapterChoice, Forget, KeyChange, SkillChange, TurnsQuery, WishChange},
};
use crate::{
    app::App,
    compare::{Question, Wanted, pick},
    lessons::{self, Done},
    privacy::SwitchChange,
    report::{self, Period},
    rollouts::Import,
};

/// A body of rollouts: what a file may have, written anew.
const MAX_IMPORT: usize = 2 * MAX_IMPORT_BYTES;

/// What every handler knows.
#[derive(Clone)]
struct Control {
    app: Arc<App>,
    token: Arc<str>,
}

/// An answer that says what is wrong.
struct Failure(StatusCode, String);

type Answer<T> = Result<Json<T>, Failure>;

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
        .route("/skills", post(skills))
        .route("/proposals", post(proposals))
        .route("/skill", post(skill))
        .route("/lessons", post(lessons_of))
        .route("/journal", post(journal))
        .route("/report", post(report_of))
        .route("/compare", post(compare))
        .route("/compare_plan", post(compare_plan))
        .route("/wish", post(wish))
        .route("/forget", post(forget))
        .route("/adapters", post(adapters))
        .route("/use_adapter", post(use_adapter))
        .route("/roll_back", post(roll_back))
        .route("/train_step", post(train_step))
        .route("/dry_run", post(dry_run))
        .route("/turn_preview", post(turn_preview))
        .route("/scheduler", post(scheduler))
        .route("/key", post(key))
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

async fn skills(State(control): State<Control>, Json(of): Json<Option<AgentId>>) -> Response {
    answer(control.app.skills(of.as_ref()).await.map_err(failed)).into_response()
}

async fn proposals(State(control): State<Control>) -> Response {
    let library = control.app.library.clone();
    on_files(move || Ok(library.proposals()?)).await
}

async fn skill(State(control): State<Control>, Json(change): Json<SkillChange>) -> Response {
    let library = control.app.library.clone();
    changed(&control, move || lessons::settle(&library, change)).await
}

async fn lessons_of(State(control): State<Control>, Json(agent): Json<AgentId>) -> Response {
    let App { log, library, .. } = &*control.app;
    let counts = match log.lesson_counts(Some(&agent)).await {
        Ok(counts) => counts,
        Err(error) => return failed(error).into_response(),
    };
    let library = library.clone();
    on_files(move || lessons::view(&library, &agent, &counts)).await
}

async fn journal(State(control): State<Control>) -> Response {
    let library = control.app.library.clone();
    on_files(move || Ok(library.journal()?)).await
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

fn refused(error: &anyhow::Error) -> Failure {
    Failure(StatusCode::CONFLICT, format!("{error:#}"))
}

async fn wish(State(control): State<Control>, Json(change): Json<WishChange>) -> Response {
    let library = control.app.library.clone();
    changed(&control, move || lessons::apply(&library, change)).await
}

/// Changes lessons; what came into force is counted, and what was done is told.
async fn changed(
    control: &Control,
    work: impl FnOnce() -> anyhow::Result<Done> + Send + 'static,
) -> Response {
    let done = match spawned(work).await {
        Ok(done) => done,
        Err(failure) => return failure.into_response(),
    };
    if let Some(agent) = &done.learned
        && let Err(error) = lessons::count(&control.app.log, agent).await
    {
        warn!(%error, "a lesson is missing in the counts of its day");
    }
    Json(done.told).into_response()
}

async fn forget(State(control): State<Control>, Json(what): Json<Forget>) -> Response {
    let App {
        log, library, home, ..
    } = &*control.app;
    let forgotten = lessons::forget(log, (library, home), &what).await;
    answer(forgotten.map_err(|error| refused(&error))).into_response()
}

/// Runs what touches the file system where blocking is allowed.
async fn on_files<T: Serialize + Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Response {
    answer(spawned(work).await).into_response()
}

async fn spawned<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()));
    done?.map_err(|error| refused(&error))
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
    let refused = |error: anyhow::Error| Failure(StatusCode::CONFLICT, format!("{error:#}"));
    answer(chosen.map_err(refused)).into_response()
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

fn answer<T>(given: Result<T, Failure>) -> Answer<T> {
    given.map(Json)
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}
