//! The traits of operations, and their failures.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::http::StatusCode;
use futures_util::stream::BoxStream;
use metaclaw_turns::LogError;
use serde::{Serialize, de::DeserializeOwned};
use tokio::task::JoinError;

use crate::instance::Instance;

/// One thing that a command does, as a request. The running process carries it out if there is one, else the command
/// itself, by the same function.
///
/// Futures and streams of operations are boxed, so that an operation is compiled once, here, and not again in each crate
/// that calls it.
#[async_trait]
pub trait Operation: Serialize + DeserializeOwned + Send + 'static {
    /// The path of the request at the control listener of the running process.
    const PATH: &'static str;
    /// The longest request in bytes.
    const MAX_BODY: usize = 2 << 20;
    /// How long a command waits for the running process.
    const DEADLINE: Duration = Duration::from_secs(30);
    /// The command that shows whether the operation was carried out, or `None` if the operation changes nothing.
    const SHOWN_BY: Option<&'static str> = None;
    type Reply: Serialize + DeserializeOwned + Send + 'static;

    /// Carries out the operation on the running process, or on the files of a home.
    async fn perform(self, instance: &Instance) -> Result<Self::Reply, OperationFailure>;
}

/// An operation whose reply is a stream of lines. Each line is sent as soon as it exists.
pub trait StreamedOperation: Serialize + DeserializeOwned + Send + 'static {
    /// The path of the request at the control listener of the running process.
    const PATH: &'static str;

    /// Carries out the operation while the stream is read. If it fails, the last piece is an error. `note` gets the
    /// warnings.
    fn stream(
        self,
        instance: Arc<Instance>,
        note: fn(&str),
    ) -> BoxStream<'static, io::Result<Vec<u8>>>;
}

/// Why an operation failed.
#[derive(Debug)]
pub struct OperationFailure {
    pub kind: FailureKind,
    pub error: anyhow::Error,
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The request cannot be carried out in the present state, for example because nothing can be undone.
    Refused,
    /// A part of the process does not answer now.
    Unavailable,
    /// The training server does not answer.
    TrainingServer,
}

// === impl OperationFailure ===

impl OperationFailure {
    /// A part of the process that does not answer now.
    pub fn unavailable(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: FailureKind::Unavailable,
            error: error.into(),
        }
    }

    /// A training server that does not answer.
    pub fn training_server(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: FailureKind::TrainingServer,
            error: error.into(),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for OperationFailure {
    fn from(error: E) -> Self {
        let error: anyhow::Error = error.into();
        let kind = match error.downcast_ref() {
            Some(LogError::Closed | LogError::Broken { .. }) => FailureKind::Unavailable,
            _ if error.is::<JoinError>() => FailureKind::Unavailable,
            _ => FailureKind::Refused,
        };
        Self { kind, error }
    }
}

// === impl FailureKind ===

impl FailureKind {
    /// The status of an answer over HTTP.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Refused => StatusCode::CONFLICT,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TrainingServer => StatusCode::BAD_GATEWAY,
        }
    }
}

/// The text of an error with its causes, except for causes that it names itself.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
