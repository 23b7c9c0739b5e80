//! What a learner asks of whoever trains.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use metaclaw_trainer_terms::ErrorCode;
use serde_json::Value;

use crate::{
    AdapterName, CheckpointName, RunId,
    wire::{
        AdapterInfo, CheckpointInfo, CheckpointSaveReply, CreateReply, CreateRequest,
        ForwardBackwardReply, ForwardBackwardRequest, ForwardReply, ForwardRequest, Health,
        LoadAdapterReply, OptimStepReply, OptimStepRequest, SampleReply, SampleRequest, Sampled,
        SaveWeightsReply, TokenizeReply, TokenizeRequest,
    },
};

pub(crate) type Result<T, E = BackendError> = std::result::Result<T, E>;

/// The future of one call.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The operations of training, in one vocabulary for every dialect.
///
/// Nothing here retries: whether a call may be made again after an ambiguous failure is decided by
/// the step transaction, which knows what the last checkpoint holds.
///
/// # Cancel safety
/// Dropping a future cancels the wait, not the work: a call that was sent may still take effect.
pub trait TrainingBackend: fmt::Debug + Send + Sync {
    /// State and capabilities; cheap, open, of a short deadline.
    fn health(&self) -> BackendFuture<'_, Health>;

    /// A new run: fresh adapter, zero gradients, step 0.
    fn create_run(&self, request: CreateRequest) -> BackendFuture<'_, CreateReply>;

    /// Log-probabilities of given ids; touches no gradient.
    fn forward(&self, request: ForwardRequest) -> BackendFuture<'_, ForwardReply>;

    /// Adds the gradient of a loss.
    fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> BackendFuture<'_, ForwardBackwardReply>;

    /// Applies the gradient and drops it.
    fn optim_step(&self, request: OptimStepRequest) -> BackendFuture<'_, OptimStepReply>;

    /// Saves the run's adapter so that it can be served under `name`.
    fn save_adapter(&self, run: RunId, name: AdapterName) -> BackendFuture<'_, SaveWeightsReply>;

    /// Saves adapter, optimiser and step, with `manifest` kept verbatim.
    fn save_checkpoint(
        &self,
        run: RunId,
        name: CheckpointName,
        manifest: Value,
    ) -> BackendFuture<'_, CheckpointSaveReply>;

    /// Makes the run what a checkpoint holds; returns its step. Gradients are dropped.
    fn load_checkpoint(&self, run: RunId, path: String) -> BackendFuture<'_, u64>;

    /// Every complete checkpoint, oldest first.
    fn checkpoints(&self) -> BackendFuture<'_, Vec<CheckpointInfo>>;

    /// Deletes the checkpoints, with the adapters of their names, that are neither among the last of their line nor
    /// in use nor in `keep`; returns what went.
    fn prune(&self, keep: Vec<CheckpointName>) -> BackendFuture<'_, Vec<CheckpointName>>;

    /// Gives a run's memory back.
    fn close_run(&self, run: RunId) -> BackendFuture<'_, ()>;

    /// Every adapter on disk.
    fn adapters(&self) -> BackendFuture<'_, Vec<AdapterInfo>>;

    /// Takes a saved adapter into memory, so that the first request finds it there.
    fn load_adapter(&self, name: AdapterName) -> BackendFuture<'_, LoadAdapterReply>;

    /// Takes an adapter out of memory; whether it had been there.
    fn unload_adapter(&self, name: AdapterName) -> BackendFuture<'_, bool>;

    /// Continuations of given ids.
    fn sample(&self, request: SampleRequest) -> BackendFuture<'_, SampleReply>;

    /// Messages or text to ids, by the model's own template.
    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply>;

    /// Whether a server that can be reached is sure to answer [`Self::forward`]. Of one with Tinker's API only a try tells.
    fn surely_scores(&self) -> bool {
        true
    }

    /// How long a call that trains may take before it counts as lost.
    fn deadline(&self) -> Duration;

    /// The sampled ids and log-probabilities of a reply; `None` if they are not kept, or no longer.
    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>>;
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// No trainer runs at the moment.
    #[error("{call}: no training server is running")]
    NoEndpoint { call: &'static str },
    /// The connection was not made, so nothing was asked.
    #[error("{call}: cannot connect to {url}")]
    Connect {
        call: &'static str,
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// No answer in time; the work may have been done.
    #[error("{call}: no answer from {url} within {after:?}")]
    Timeout {
        call: &'static str,
        url: String,
        after: Duration,
    },
    /// The connection broke after the request went; the work may have been done.
    #[error("{call}: the connection to {url} broke")]
    Broken {
        call: &'static str,
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The server answered with an error.
    #[error("{call}: {status} from {url}: {message}")]
    Status {
        call: &'static str,
        url: String,
        status: u16,
        /// The stable word of the error body, if it has one.
        code: Option<ErrorCode>,
        /// The field that was wrong, if the server names it: `datums[3]` if a datum is wrong.
        param: Option<String>,
        /// The error body's message, or its text.
        message: String,
    },
    /// The answer reports success but is not what the API promises. The work was done.
    #[error("{call}: cannot read the answer of {url}: {why}")]
    Unreadable {
        call: &'static str,
        url: String,
        why: String,
    },
    /// The server no longer knows the request's object. The work may have been done.
    #[error("{call}: {url} has lost what it was asked for: {why}")]
    Lost {
        call: &'static str,
        url: String,
        why: String,
    },
    /// The server has no way to answer this, now or later.
    #[error("{call}: {url} does not answer this: {what}")]
    NotSupported {
        call: &'static str,
        url: String,
        what: String,
    },
    /// The request could not be written.
    #[error("{call}: cannot write the request: {why}")]
    Request { call: &'static str, why: String },
}

// === impl BackendError ===

impl BackendError {
    pub(crate) fn unanswered(
        call: &'static str,
        url: &str,
        deadline: Duration,
        source: reqwest::Error,
    ) -> Self {
        let url = url.to_owned();
        // A timeout while connecting is both kinds of error; what matters is that nothing was sent.
        if source.is_connect() {
            return Self::Connect { call, url, source };
        }
        if source.is_builder() {
            let why = source.to_string();
            return Self::Request { call, why };
        }
        if source.is_timeout() {
            let after = deadline;
            return Self::Timeout { call, url, after };
        }
        Self::Broken { call, url, source }
    }

    /// Whether the work may have been done although no success was seen: only the checkpoints tell.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::Unreadable { .. }
            | Self::Lost { .. } => true,
            Self::Status { status, .. } => *status >= 500,
            Self::NoEndpoint { .. }
            | Self::Connect { .. }
            | Self::NotSupported { .. }
            | Self::Request { .. } => false,
        }
    }

    /// Whether the server could not be reached. The same call may succeed later.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoEndpoint { .. } | Self::Connect { .. })
    }

    /// The HTTP status, where an answer came.
    pub fn status(&self) -> Option<u16> {
        if let Self::Status { status, .. } = self {
            return Some(*status);
        }
        None
    }

    /// Whether the server has too much to do, or is not ready yet: the same call may go another time.
    pub fn is_busy(&self) -> bool {
        matches!(self.status(), Some(409 | 425 | 429 | 503))
    }

    /// Whether the server knows no such run: it has been restarted since.
    pub fn is_unknown_run(&self) -> bool {
        self.status() == Some(404) && self.code() == Some(&ErrorCode::RunNotFound)
    }

    /// The stable word of the error body, if it has one.
    pub fn code(&self) -> Option<&ErrorCode> {
        if let Self::Status { code, .. } = self {
            return code.as_ref();
        }
        None
    }

    /// The failure as `status` shows it. An answer of our own process is shown without its address, which says nothing
    /// to the owner.
    pub fn words(&self) -> String {
        match self {
            Self::Status {
                code: Some(ErrorCode::NoTokenizer),
                message,
                ..
            } => message.clone(),
            other => other.to_string(),
        }
    }

    /// Whether the server has no such call or option: asking again is of no use, and what hangs on the answer is not done.
    pub fn is_not_supported(&self) -> bool {
        matches!(self, Self::NotSupported { .. })
    }

    /// Whether no answer came in time: the same work takes as long the next time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Whether the samples together gave a gradient that is not finite, as they will the next time.
    pub fn is_not_finite(&self) -> bool {
        self.code() == Some(&ErrorCode::GradientNotFinite)
    }

    /// Whether weights gave a number that is not finite. No sample is the cause of that.
    pub fn is_of_weights(&self) -> bool {
        self.code() == Some(&ErrorCode::WeightsNotFinite)
    }

    /// The datum of the request that the server refuses, counted from 0, where it names one.
    pub fn datum(&self) -> Option<usize> {
        let Self::Status {
            status: 400..500,
            param: Some(param),
            ..
        } = self
        else {
            return None;
        };
        let (at, _field) = param.strip_prefix("datums[")?.split_once(']')?;
        at.parse().ok()
    }
}
