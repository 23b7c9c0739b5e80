//! Why a chat model gave no answer.

use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde_json::Value;

/// Characters of a server's error that are told on.
const MAX_TOLD: usize = 300;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No connection, or one that broke.
    #[error("{url} cannot be reached: {source}")]
    Unreachable {
        url: Url,
        /// What the connection said.
        source: reqwest::Error,
    },
    /// An error instead of an answer.
    #[error("{url} answered {status}: {message}")]
    Status {
        url: Url,
        status: StatusCode,
        /// The beginning of its message.
        message: String,
        /// How long it asked us to wait.
        retry_after: Option<Duration>,
    },
    #[error("{url} did not answer within {} s", .timeout.as_secs_f32())]
    Deadline { url: Url, timeout: Duration },
    /// Something that is no chat completion.
    #[error("{url} answered with no chat completion: {why}")]
    NotAnAnswer {
        url: Url,
        /// What is wrong with it.
        why: String,
    },
}

// === impl AskError ===

impl AskError {
    /// Whether asking again later may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } => true,
            Self::Status { status, .. } => {
                let too_early = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
                status.is_server_error() || too_early.contains(status)
            }
            Self::NotAnAnswer { .. } => false,
        }
    }

    /// What a server said that refuses how it was asked.
    pub(super) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Status {
                status: StatusCode::BAD_REQUEST,
                message,
                ..
            } => Some(message),
            Self::Status { .. }
            | Self::Unreachable { .. }
            | Self::Deadline { .. }
            | Self::NotAnAnswer { .. } => None,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::NotAnAnswer { .. } => None,
        }
    }
}

/// The beginning of a server's error message.
pub(crate) fn told(body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let message = json.as_ref().and_then(|json| {
        let error = &json["error"];
        [&error["message"], error, &json["message"], &json["detail"]]
            .into_iter()
            .find_map(Value::as_str)
    });
    let text = message.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    text.chars().take(MAX_TOLD).collect()
}
