//! The control listener of the running process: loopback only, with a token of its own.
//!
//! The token is not the proxy's key: whoever may chat may not thereby stop, train or read the log.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use metaclaw_learner::EvalWanted;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    adapters::AdapterChoice,
    client::RefusedReply,
    compare::{ComparedQuestion, ComparisonWanted},
    instance::Instance,
    lessons::{Forget, SkillChange, WishChange},
    operation::{FailureKind, Operation, OperationFailure, StreamedOperation, with_causes},
    operations::{
        lessons::{GetJournal, ListLessons, ListProposals, ListSkills, ListWishes},
        process::{GetReport, GetSchedule, GetStatus, KeyChange, StopProcess},
        turns::{Export, FindLacking, GetTurn, RaiseCounts, Restore, TurnsQuery},
        weights::{ListAdapters, PreviewStep, PreviewTurn, RollBack, TrainStep},
    },
    privacy::SwitchChange,
    replays::ReplayAsked,
    rollouts::RolloutImport,
};

/// What every handler knows.
#[derive(Clone)]
struct Control {
    instance: Arc<Instance>,
    token: Arc<str>,
}

/// Answers on `listener` until `ending`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    instance: Arc<Instance>,
    token: String,
    ending: CancellationToken,
) -> std::io::Result<()> {
    let control = Control {
        instance,
        token: token.into(),
    };
    let routes = routes()
        .route_layer(middleware::from_fn_with_state(control.clone(), admit))
        .with_state(control);
    axum::serve(listener, routes)
        .with_graceful_shutdown(ending.cancelled_owned())
        .await
}

/// Every operation that a command can ask for.
fn routes() -> Router<Control> {
    let routes = Router::new();
    let routes = route::<GetStatus>(routes);
    let routes = route::<StopProcess>(routes);
    let routes = route::<SwitchChange>(routes);
    let routes = route::<KeyChange>(routes);
    let routes = route::<GetSchedule>(routes);
    let routes = route::<GetReport>(routes);
    let routes = route::<TurnsQuery>(routes);
    let routes = route::<GetTurn>(routes);
    let routes = stream::<Export>(routes);
    let routes = route::<RolloutImport>(routes);
    let routes = route::<Restore>(routes);
    let routes = route::<FindLacking>(routes);
    let routes = route::<RaiseCounts>(routes);
    let routes = route::<ListSkills>(routes);
    let routes = route::<ListProposals>(routes);
    let routes = route::<SkillChange>(routes);
    let routes = route::<ListWishes>(routes);
    let routes = route::<ListLessons>(routes);
    let routes = route::<GetJournal>(routes);
    let routes = route::<WishChange>(routes);
    let routes = route::<Forget>(routes);
    let routes = route::<ListAdapters>(routes);
    let routes = route::<AdapterChoice>(routes);
    let routes = route::<RollBack>(routes);
    let routes = route::<TrainStep>(routes);
    let routes = route::<PreviewStep>(routes);
    let routes = route::<PreviewTurn>(routes);
    let routes = route::<EvalWanted>(routes);
    let routes = route::<ComparisonWanted>(routes);
    let routes = route::<ComparedQuestion>(routes);
    stream::<ReplayAsked>(routes)
}

fn route<O: Operation>(routes: Router<Control>) -> Router<Control> {
    let limit = DefaultBodyLimit::max(O::MAX_BODY);
    routes.route(&format!("/{}", O::PATH), post(perform::<O>).layer(limit))
}

fn stream<O: StreamedOperation>(routes: Router<Control>) -> Router<Control> {
    routes.route(&format!("/{}", O::PATH), post(pieces::<O>))
}

async fn perform<O: Operation>(State(control): State<Control>, body: Bytes) -> Response {
    match read::<O>(&body) {
        Ok(operation) => match operation.perform(&control.instance).await {
            Ok(reply) => Json(reply).into_response(),
            Err(failure) => refused(&failure),
        },
        Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    }
}

async fn pieces<O: StreamedOperation>(State(control): State<Control>, body: Bytes) -> Response {
    let operation: O = match read(&body) {
        Ok(operation) => operation,
        Err(error) => return refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    };
    let pieces = operation.stream(control.instance, |note| warn!("{note}"));
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(pieces)).into_response()
}

/// The request; what asks for nothing in particular may come without a body.
fn read<O: serde::de::DeserializeOwned>(body: &Bytes) -> serde_json::Result<O> {
    serde_json::from_slice(if body.is_empty() { b"null" } else { body })
}

fn refused(failure: &OperationFailure) -> Response {
    let status = match failure.kind {
        FailureKind::Refused => StatusCode::CONFLICT,
        FailureKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        FailureKind::TrainingServer => StatusCode::BAD_GATEWAY,
    };
    refusal(status, with_causes(&failure.error))
}

fn refusal(status: StatusCode, message: String) -> Response {
    let error = Some(message);
    (status, Json(RefusedReply { error })).into_response()
}

/// Lets nobody in who does not show the token.
async fn admit(State(control): State<Control>, request: Request, next: Next) -> Response {
    if shows(request.headers(), &control.token) {
        next.run(request).await
    } else {
        let message = "the admin token of run.json is asked for here".to_owned();
        refusal(StatusCode::UNAUTHORIZED, message)
    }
}

fn shows(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|it| it.to_str().ok());
    let given = given.and_then(|it| it.strip_prefix("Bearer "));
    given.is_some_and(|given| given.as_bytes().ct_eq(token.as_bytes()).into())
}
