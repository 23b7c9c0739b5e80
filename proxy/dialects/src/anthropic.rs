//! Anthropic's shapes; today its errors alone, so that our own reach its clients in words they know.

use serde_json::{Value, json};

use crate::ErrorBody;

/// `{"type": "error", "error": {"type", "message"}}`.
pub fn error(error: &ErrorBody<'_>) -> Value {
    json!({ "type": "error", "error": { "type": kind(error.status), "message": error.message } })
}

/// The error type that goes with a status: <https://docs.anthropic.com/en/api/errors>.
fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        500..=599 => "api_error",
        _ => "invalid_request_error",
    }
}
