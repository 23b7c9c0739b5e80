//! Routes whose work other crates do: the gateway receives the call and passes it on.

use std::{future::Future, pin::Pin, sync::Arc};

use http::{HeaderMap, Method, StatusCode};
use metaclaw_chat::{AgentId, Secret};
use serde_json::{Map, Value};
use tracing::Span;

use crate::metrics::Series;

/// A service of another crate for callers.
pub trait Service: Send + Sync + 'static {
    /// Answers a call of an authorised caller.
    fn call(&self, call: Call) -> Answering<'_>;
}

/// The future that [`Service::call`] returns: the body of the answer.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, ServiceError>> + Send + 'a>>;

#[derive(Debug, Clone)]
pub struct Call {
    /// The agent for which the caller speaks.
    pub agent: AgentId,
    /// The body, or `null` if there is none.
    pub body: Value,
}

/// The memory API, which another crate answers.
pub trait MemoryService: Send + Sync + 'static {
    /// Answers a call of an authorised caller.
    fn call(&self, call: MemoryCall) -> Answering<'_>;
}

/// A call of the memory API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryCall {
    /// The agent for which the caller speaks, or `None` for a caller that may speak for all and names none.
    pub agent: Option<AgentId>,
    pub method: Method,
    /// The path below `/v1/memory`, without slashes at its ends.
    pub path: String,
    /// The fields of a POST's body, or of another request's query.
    pub fields: Map<String, Value>,
}

/// Why a service failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServiceError {
    /// The status of the answer.
    pub status: StatusCode,
    /// The description of the failure.
    pub message: String,
}

/// The services that the crate `cli` provides.
#[derive(derive_more::Debug, Clone)]
#[debug("Services")]
pub struct Services {
    /// `POST /v1/feedback`, with the proxy's key.
    pub feedback: Option<Arc<dyn Service>>,
    /// `GET /v1/rollouts/wanted`, with the proxy's key: which held-out tasks the gate wants to be run.
    pub wanted: Option<Arc<dyn Service>>,
    /// `/v1/memory/..`, with the proxy's key; none where memory is off.
    pub memory: Option<Arc<dyn MemoryService>>,
    /// `POST /v1/admin/train_step` for old scripts, with the admin token.
    pub train_step: Option<Arc<dyn Service>>,
    /// For `GET /readyz` if nobody can answer: the reason why the policy model cannot answer yet, if that is the cause.
    pub ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// For `GET /metrics`: the counters of other crates. It may access the file system.
    pub metrics: Arc<dyn Fn() -> Vec<Series> + Send + Sync>,
    /// The port of the page on this machine, for a browser that comes to the proxy's port.
    pub page_port: Option<u16>,
    /// The token of `run.json`.
    pub admin_token: Secret,
    /// Joins a request's span to the trace that its headers name.
    pub set_parent: fn(&Span, &HeaderMap),
}

// === impl Services ===

impl Services {
    /// Makes no services, always ready.
    pub fn none(admin_token: Secret) -> Self {
        Self {
            feedback: None,
            wanted: None,
            memory: None,
            train_step: None,
            ready: Arc::new(|| Ok(())),
            metrics: Arc::new(Vec::new),
            page_port: None,
            admin_token,
            set_parent: |_, _| {},
        }
    }
}
