//! The control listener of the running process: loopback only, with a token of its own.
//!
//! The token is not the proxy's key: whoever may chat may not thereby stop, train or read the log.

use std::{future::ready, sync::Arc};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::future::BoxFuture;
use metaclaw_gateway::{max_local_connections, serve_local};
use metaclaw_learner::{EvalWanted, SftWanted};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    adapters::AdapterChoice,
    agents::AgentChange,
    client::RefusedReply,
    compare::Compare,
    curves::CurvesWanted,
    forgetting::Forget,
    instance::Instance,
    lessons::{SkillChange, WishChange},
    operation::{Operation, OperationFailure, StreamedOperation, with_causes},
    operations::{
        agents::ListAgents,
        lessons::{GetJournal, ListLessons, ListProposals, ListSkills, ListWishes},
        memory::{ListMemories, MemoryChange},
        process::{CreateLogin, GetReport, GetSchedule, GetStatus, KeyChange, StopProcess},
        rollouts::{GetRollout, ListRollouts},
        turns::{
            ConversationFilter, Export, FindLacking, GetTurn, RaiseCounts, RateReply, Restore,
            TurnsQuery,
        },
        weights::{ListAdapters, ListSteps, PreviewStep, PreviewTurn, RollBack, TrainStep},
    },
    privacy::SwitchChange,
    replays::ReplayAsked,
    rollouts::RolloutImport,
};

#[derive(Clone)]
struct Control {
    instance: Arc<Instance>,
    token: Arc<str>,
}

/// Answers on `listener` until `ending`: every operation, and the routes of `page`, which admits browsers by itself.
pub fn serve(
    listener: TcpListener,
    instance: Arc<Instance>,
    token: String,
    page: Router,
    ending: CancellationToken,
) -> BoxFuture<'static, ()> {
    let control = Control {
        instance,
        token: token.into(),
    };
    let routes = routes()
        .router
        .route_layer(middleware::from_fn_with_state(control.clone(), admit))
        .with_state(control)
        .merge(page);
    serve_local(listener, routes, max_local_connections(), ending)
}

/// The paths of all operations.
pub fn operation_paths() -> Vec<&'static str> {
    routes().paths
}

fn routes() -> OperationRoutes {
    OperationRoutes::default()
        .route::<GetStatus>()
        .route::<StopProcess>()
        .route::<SwitchChange>()
        .route::<KeyChange>()
        .route::<ListAgents>()
        .route::<AgentChange>()
        .route::<GetSchedule>()
        .route::<GetReport>()
        .route::<CreateLogin>()
        .route::<CurvesWanted>()
        .route::<TurnsQuery>()
        .route::<ConversationFilter>()
        .route::<ListRollouts>()
        .route::<GetRollout>()
        .route::<GetTurn>()
        .route::<RateReply>()
        .stream::<Export>()
        .route::<RolloutImport>()
        .route::<Restore>()
        .route::<FindLacking>()
        .route::<RaiseCounts>()
        .route::<ListSkills>()
        .route::<ListProposals>()
        .route::<SkillChange>()
        .route::<ListWishes>()
        .route::<ListLessons>()
        .route::<GetJournal>()
        .route::<WishChange>()
        .route::<Forget>()
        .route::<ListMemories>()
        .route::<MemoryChange>()
        .route::<ListAdapters>()
        .route::<ListSteps>()
        .route::<AdapterChoice>()
        .route::<RollBack>()
        .route::<TrainStep>()
        .route::<PreviewStep>()
        .route::<PreviewTurn>()
        .route::<EvalWanted>()
        .route::<Compare>()
        .stream::<ReplayAsked>()
        .stream::<SftWanted>()
}

/// Answers one operation's requests. All routes have a handler of this type, so that axum's part of a route is compiled
/// once.
type Answer = fn(Control, Bytes) -> BoxFuture<'static, Response>;

const STREAMED_MAX_BODY: usize = 2 << 20;

#[derive(Default)]
struct OperationRoutes {
    router: Router<Control>,
    paths: Vec<&'static str>,
}

// === impl OperationRoutes ===

impl OperationRoutes {
    fn route<O: Operation>(self) -> Self {
        self.with(O::PATH, O::MAX_BODY, |control, body| {
            Box::pin(perform::<O>(control, body))
        })
    }

    fn stream<O: StreamedOperation>(self) -> Self {
        self.with(O::PATH, STREAMED_MAX_BODY, |control, body| {
            Box::pin(ready(pieces::<O>(control, &body)))
        })
    }

    fn with(mut self, path: &'static str, max_body: usize, answer: Answer) -> Self {
        let handler = move |State(control): State<Control>, body: Bytes| answer(control, body);
        let method = post(handler).layer(DefaultBodyLimit::max(max_body));
        self.router = self.router.route(&format!("/{path}"), method);
        self.paths.push(path);
        self
    }
}

async fn perform<O: Operation>(control: Control, body: Bytes) -> Response {
    match read::<O>(&body) {
        Ok(operation) => match operation.perform(&control.instance).await {
            Ok(reply) => Json(reply).into_response(),
            Err(failure) => refused(&failure),
        },
        Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    }
}

fn pieces<O: StreamedOperation>(control: Control, body: &Bytes) -> Response {
    let operation: O = match read(body) {
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
    refusal(failure.kind.status(), with_causes(&failure.error))
}

fn refusal(status: StatusCode, message: String) -> Response {
    let error = Some(message);
    (status, Json(RefusedReply { error })).into_response()
}

/// Lets nobody in who does not show the token. This comes before a byte of the body is read.
async fn admit(State(control): State<Control>, request: Request, next: Next) -> Response {
    if request.headers().get_all(header::ORIGIN).iter().count() > 1 {
        let message = "origin: must be given once".to_owned();
        refusal(StatusCode::BAD_REQUEST, message)
    } else if shows_token(request.headers(), &control.token) {
        next.run(request).await
    } else {
        let message = "the admin token of run.json is asked for here".to_owned();
        refusal(StatusCode::UNAUTHORIZED, message)
    }
}

/// Returns whether a request has the token. The time that this takes reveals only the token's length.
pub fn shows_token(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|given| given.to_str().ok());
    let given = given.and_then(|given| given.strip_prefix("Bearer "));
    given.is_some_and(|given| given.as_bytes().ct_eq(token.as_bytes()).into())
}
