//! Why a chat model gave no answer.

use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde_json::Value;

/// Characters of a server's error that are quoted.
const MAX_TOLD: usize = 300;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no connection, or it broke.
    #[error("{url} cannot be reached: {source}")]
    Unreachable {
        url: Url,
        /// The error of the connection.
        source: reqwest::Error,
    },
    /// The server answered with an error.
    #[error("{url} answered {status}: {message}")]
    Status {
        url: Url,
        status: StatusCode,
        /// The beginning of its message.
        message: String,
        /// The wait that the server asks for.
        retry_after: Option<Duration>,
    },
    #[error("{url} did not answer within {} s", .timeout.as_secs_f32())]
    Deadline { url: Url, timeout: Duration },
    /// There is no signature, so nothing was sent.
    #[error("{url} was not asked: {why}")]
    Unsigned {
        url: Url,
        /// What is missing.
        why: String,
    },
    /// The server's answer is not a chat completion.
    #[error("{url} answered with no chat completion: {why}")]
    NotAnAnswer {
        url: Url,
        /// What is wrong with it.
        why: String,
    },
}

// === impl AskError ===

impl AskError {
    /// Returns whether a later retry may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } => true,
            Self::Status { status, .. } => {
                let too_early = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
                status.is_server_error() || too_early.contains(status)
            }
            Self::NotAnAnswer { .. } | Self::Unsigned { .. } => false,
        }
    }

    /// Returns the server's message if it refused the request's fields.
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
            | Self::Unsigned { .. }
            | Self::NotAnAnswer { .. } => None,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Unreachable { .. }
            | Self::Deadline { .. }
            | Self::Unsigned { .. }
            | Self::NotAnAnswer { .. } => None,
        }
    }
}

/// Returns the beginning of a server's error message.
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
