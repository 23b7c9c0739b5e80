//! `metaclaw rollout serve`: runs the program of a file for a runner on another machine.
//!
//! A request says which task is done and where the model is. Which program runs is only in the file of this machine.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{StatusCode, header::AUTHORIZATION},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::future::BoxFuture;
use metaclaw_chat::Secret;
use serde_json::json;
use tokio::{net::TcpListener, sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;

use super::EnvironmentHealth;
use crate::program::{LocalProgram, ProgramJob};

const MAX_JOB: usize = 32 << 20;
/// How long an episode waits for a slot. The slot of a runner that hung up is free a moment later.
const SLOT_WAIT: Duration = Duration::from_secs(5);

/// Why an environment cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "{address} can be reached from other machines, and there is no key: set {KEY_VARIABLE} here and where `metaclaw rollout run` is, or listen on 127.0.0.1"
    )]
    Open { address: SocketAddr },
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the listener has failed: {0}")]
    Serve(io::Error),
}

/// The variable with the key that runner and environment share.
pub const KEY_VARIABLE: &str = "METACLAW_ENVIRONMENT_KEY";

/// An environment that listens.
#[derive(Debug)]
pub struct EnvironmentServer {
    listener: TcpListener,
    state: Arc<ServeState>,
}

#[derive(Debug)]
struct ServeState {
    program: LocalProgram,
    at_once: usize,
    slots: Semaphore,
    key: Option<Secret>,
    ending: CancellationToken,
}

// === impl EnvironmentServer ===

impl EnvironmentServer {
    pub(crate) async fn bind(
        address: SocketAddr,
        program: LocalProgram,
        at_once: usize,
        key: Option<Secret>,
    ) -> Result<Self, ServeError> {
        if key.is_none() && !address.ip().is_loopback() {
            return Err(ServeError::Open { address });
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| ServeError::Listen { address, source })?;
        let state = ServeState {
            program,
            at_once,
            slots: Semaphore::new(at_once),
            key,
            ending: CancellationToken::new(),
        };
        Ok(Self {
            listener,
            state: Arc::new(state),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs episodes until `ending` is done. Those that run are ended then.
    ///
    /// # Errors
    /// If the listener fails.
    pub fn serve(
        self,
        ending: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, Result<(), ServeError>> {
        Box::pin(async move {
            let token = self.state.ending.clone();
            let ending = async move {
                ending.await;
                token.cancel();
            };
            let routes = Router::new()
                .route("/run", post(run))
                .route("/healthz", get(healthz))
                .route_layer(middleware::from_fn_with_state(
                    Arc::clone(&self.state),
                    keyed,
                ))
                .layer(DefaultBodyLimit::max(MAX_JOB))
                .with_state(self.state);
            axum::serve(self.listener, routes)
                .with_graceful_shutdown(ending)
                .await
                .map_err(ServeError::Serve)
        })
    }
}

async fn healthz(State(state): State<Arc<ServeState>>) -> Json<EnvironmentHealth> {
    Json(EnvironmentHealth {
        at_once: state.at_once,
    })
}

async fn run(State(state): State<Arc<ServeState>>, Json(job): Json<ProgramJob>) -> Response {
    let Ok(Ok(_slot)) = timeout(SLOT_WAIT, state.slots.acquire()).await else {
        let why = format!("{} episodes run already, which is at_once", state.at_once);
        return refused(StatusCode::SERVICE_UNAVAILABLE, &why);
    };
    match state.program.run(&job, &state.ending).await {
        Ok(end) => Json(end).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn keyed(State(state): State<Arc<ServeState>>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(AUTHORIZATION);
    let shown = shown.and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
    let may_enter = match (&state.key, shown) {
        (None, _) => true,
        (Some(key), Some(shown)) => key.matches(shown),
        (Some(_), None) => false,
    };
    if may_enter {
        next.run(request).await
    } else {
        let why = format!(
            "the key is missing or wrong: {KEY_VARIABLE} has to be the same on both machines"
        );
        refused(StatusCode::UNAUTHORIZED, &why)
    }
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({"error": {"message": why}}))).into_response()
}
