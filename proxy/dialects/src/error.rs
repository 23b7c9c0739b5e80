//! Our own errors in the format of the caller's API.

use serde_json::{Value, json};

/// An error of ours, to be written in the format of the caller's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnError<'a> {
    /// The HTTP status. Anthropic's error type is derived from it.
    pub status: u16,
    /// What was wrong, the given value, and the allowed ones.
    pub message: &'a str,
    /// OpenAI's `type`, for example `invalid_request_error`.
    pub kind: &'a str,
    /// The field at fault, for example `messages[2].role`.
    pub param: Option<&'a str>,
    /// A code for programs, for example `context_length_exceeded`.
    pub code: Option<&'a str>,
}

pub(crate) fn openai(error: &OwnError<'_>) -> Value {
    json!({ "error": {
        "message": error.message,
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    } })
}

pub(crate) fn anthropic(error: &OwnError<'_>) -> Value {
    json!({ "type": "error", "error": { "type": anthropic_type(error.status), "message": error.message } })
}

/// Returns the error type for a status: <https://docs.anthropic.com/en/api/errors>.
pub(crate) fn anthropic_type(status: u16) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: OwnError<'static> = OwnError {
        status: 413,
        message: "too large",
        kind: "invalid_request_error",
        param: Some("messages"),
        code: None,
    };

    #[test]
    fn an_error_has_the_shape_of_its_api() {
        insta::assert_snapshot!(openai(&ERROR), @r#"{"error":{"message":"too large","type":"invalid_request_error","param":"messages","code":null}}"#);
        insta::assert_snapshot!(anthropic(&ERROR), @r#"{"type":"error","error":{"type":"request_too_large","message":"too large"}}"#);
    }
}
