//! Routes that reach beyond the gateway: it takes the call, another room does the work.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use http::{HeaderMap, StatusCode};
use metaclaw_chat::{AgentId, Secret};
use serde_json::Value;
use tracing::Span;

use crate::metrics::Series;

/// What another room does for a caller.
pub trait Service: Send + Sync + 'static {
    /// Answers a call whose caller may make it.
    fn call(&self, call: Call) -> Answering<'_>;
}

/// What [`Service::call`] gives: the body of the answer.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, ServiceError>> + Send + 'a>>;

#[derive(Debug, Clone)]
pub struct Call {
    /// The agent that the caller speaks for.
    pub agent: AgentId,
    /// The body; `null` where there is none.
    pub body: Value,
}

/// Why a service did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServiceError {
    /// The status to answer with.
    pub status: StatusCode,
    /// What was wrong, in words.
    pub message: String,
}

/// The services that the assembly hands in.
#[derive(Clone)]
pub struct Services {
    /// `POST /v1/feedback`; takes the proxy's key.
    pub feedback: Option<Arc<dyn Service>>,
    /// `POST /v1/admin/train_step`, for old scripts; takes the admin token.
    pub train_step: Option<Arc<dyn Service>>,
    /// `GET /readyz`, where nobody can answer: why the policy model cannot yet, if that is it.
    pub ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// `GET /metrics`: what other rooms count. It may touch the file system.
    pub metrics: Arc<dyn Fn() -> Vec<Series> + Send + Sync>,
    /// The token of `run.json`.
    pub admin_token: Secret,
    /// Puts a request's span into the trace that its headers name.
    pub set_parent: fn(&Span, &HeaderMap),
}

// === impl Services ===

impl Services {
    /// No services; always ready.
    pub fn none(admin_token: Secret) -> Self {
        Self {
            feedback: None,
            train_step: None,
            ready: Arc::new(|| Ok(())),
            metrics: Arc::new(Vec::new),
            admin_token,
            set_parent: |_, _| {},
        }
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services")
            .field("feedback", &self.feedback.is_some())
            .field("train_step", &self.train_step.is_some())
            .finish_non_exhaustive()
    }
}
