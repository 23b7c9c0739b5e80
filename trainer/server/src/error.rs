//! Error to HTTP status, in one place.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use metaclaw_trainer_api::{ErrorBody, ErrorDetail};

/// What a handler answers when it cannot answer.
///
/// The message names what was wrong, where, what was given and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
    retry_after_s: Option<u32>,
}

// === impl ApiError ===

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after_s: None,
        }
    }

    /// 400: the request is wrong.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400: one field is wrong.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::bad(message);
        error.param = Some(param.into());
        error
    }

    /// 400, with the code that clients look for when a prompt is too long.
    pub(crate) fn context_length(n_prompt: usize, context: usize) -> Self {
        Self::field(
            "messages",
            format!(
                "this model's context is {context} tokens and the prompt has {n_prompt}: shorten it to at most {} tokens, so that there is room for a reply",
                context.saturating_sub(1)
            ),
        )
        .with_code("context_length_exceeded")
    }

    /// The same of a text that is too long to be tokenised at all.
    pub(crate) fn context_bytes(most: usize, context: usize) -> Self {
        let text = format!(
            "this model's context is {context} tokens, and the request has more than {most} bytes, which are more tokens than that: shorten it"
        );
        Self::field("messages", text).with_code("context_length_exceeded")
    }

    /// 400: a value that this server or its model cannot do, and another may.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::field(param, message).with_code("unsupported_value")
    }

    /// 404.
    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message).with_code(code)
    }

    /// 404, as OpenAI says it of a model.
    pub(crate) fn unknown_model(message: impl Into<String>) -> Self {
        let mut error = Self::not_found("model_not_found", message);
        error.param = Some("model".to_owned());
        error
    }

    /// 401.
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key")
    }

    /// Any other refusal.
    pub(crate) fn status(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, message)
    }

    /// 409: the run has changed meanwhile.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 410: it was here, and is no more.
    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, message).with_code("gone")
    }

    /// Whether the request is not to blame.
    pub(crate) fn is_ours(&self) -> bool {
        self.status.is_server_error()
    }

    /// 409: an adapter that cannot go.
    pub(crate) fn adapter_in_use(message: impl Into<String>) -> Self {
        Self::conflict(message).with_code("adapter_in_use")
    }

    /// 429: the queue is full, and may not be soon.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full");
        error.retry_after_s = Some(1);
        error
    }

    /// 500: ours, not the caller's.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// 503: the engine is gone.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
        error.retry_after_s = Some(5);
        error
    }

    /// With a stable word for programs.
    pub(crate) fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The body, in OpenAI's shape.
    ///
    /// Of a failure of ours the first line: libtorch puts its stack below it, which is for the log alone.
    pub(crate) fn body(&self) -> ErrorBody {
        let ours = self.status.is_server_error();
        let shown = self.message.lines().next().filter(|_| ours);
        ErrorBody {
            error: ErrorDetail {
                message: shown.unwrap_or(&self.message).to_owned(),
                kind: self.kind().to_owned(),
                param: self.param.clone(),
                code: self.code.map(str::to_owned),
            },
        }
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(status = self.status.as_u16(), "{}", self.message);
        }
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_error_never_shows_our_stack() {
        let error = ApiError::internal("libtorch: no memory\nframe #0: c10::Error");
        assert_eq!(error.body().error.message, "libtorch: no memory");
        assert_eq!(ApiError::bad("one\ntwo").body().error.message, "one\ntwo");
    }
}
