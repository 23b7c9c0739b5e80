//! OpenAI's error shape, which all who copy its API speak.

use serde_json::{Value, json};

use crate::ErrorBody;

/// `{"error": {"message", "type", "param", "code"}}`.
pub fn error(error: &ErrorBody<'_>) -> Value {
    json!({ "error": {
        "message": error.message,
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    } })
}
