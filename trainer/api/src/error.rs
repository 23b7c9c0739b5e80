//! The one shape of an error over HTTP: OpenAI's.

use metaclaw_trainer_terms::ErrorCode;
use serde::{Deserialize, Serialize};

/// `{"error": {"message", "type", "param", "code"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// What went wrong, for people (`message`) and for programs (`code`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// What is wrong, where, the value that was given, and what is allowed.
    pub message: String,
    /// The class: `invalid_request_error`, `authentication_error`, `server_error` and so on.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The field that was wrong.
    pub param: Option<String>,
    /// The stable word for programs.
    pub code: Option<ErrorCode>,
}
