//! Converts errors to HTTP status codes, in one place.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use metaclaw_trainer_api::{ErrorBody, ErrorDetail};
use metaclaw_trainer_terms::{ErrorCode, SamplerError, SamplerFailure};
use metaclaw_trainer_text::{
    template::RenderError,
    tokenizer::{EncodeError, SplitReplyError},
};

/// Seconds after which to retry a sampler that is unavailable for now, if it does not say.
const LATER_S: u32 = 5;
const AFTER_PAYMENT_S: u32 = 300;

pub type Result<T, E = ApiError> = std::result::Result<T, E>;

/// The answer of a handler that fails.
///
/// The message names what is wrong, where, the given value and the allowed ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: Option<ErrorCode>,
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

    /// Makes a 400: the request is wrong.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Makes a 400: one field is wrong.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::bad(message);
        error.param = Some(param.into());
        error
    }

    /// Makes a 400 with the code that clients look for when a prompt is too long.
    pub fn context_length(n_prompt: usize, context: usize) -> Self {
        Self::field(
            "messages",
            format!(
                "this model's context is {context} tokens and the prompt has {n_prompt}: shorten it to at most {} tokens, so that there is room for a reply",
                context.saturating_sub(1)
            ),
        )
        .with_code(ErrorCode::ContextLengthExceeded)
    }

    /// Makes the same error for a text that is too long to be tokenised at all.
    pub fn context_bytes(most: usize, context: usize) -> Self {
        let text = format!(
            "this model's context is {context} tokens, and the request has more than {most} bytes, which are more tokens than that: shorten it"
        );
        Self::field("messages", text).with_code(ErrorCode::ContextLengthExceeded)
    }

    /// Returns the same error with another field.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Makes a 400: a value that this server or its model does not support, and another may.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::field(param, message).with_code(ErrorCode::UnsupportedValue)
    }

    /// Makes a 404.
    pub fn not_found(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message).with_code(code)
    }

    /// Makes OpenAI's 404 for an unknown model.
    pub fn unknown_model(message: impl Into<String>) -> Self {
        let mut error = Self::not_found(ErrorCode::ModelNotFound, message);
        error.param = Some("model".to_owned());
        error
    }

    /// Makes a 401.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message).with_code(ErrorCode::InvalidApiKey)
    }

    pub fn status(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, message)
    }

    /// Makes a 409: the run has changed in the meantime.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// Makes a 410: it existed, and does not any more.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, message).with_code(ErrorCode::Gone)
    }

    /// Returns whether the request is not at fault.
    pub fn is_ours(&self) -> bool {
        self.status.is_server_error()
    }

    /// Makes a 409: an adapter that cannot be removed.
    pub fn adapter_in_use(message: impl Into<String>) -> Self {
        Self::conflict(message).with_code(ErrorCode::AdapterInUse)
    }

    /// Makes a 429: the queue is full.
    pub fn busy(message: impl Into<String>) -> Self {
        let mut error =
            Self::new(StatusCode::TOO_MANY_REQUESTS, message).with_code(ErrorCode::QueueFull);
        error.retry_after_s = Some(1);
        error
    }

    /// Makes a 500: the fault is ours, not the caller's.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Makes a 503: the engine is gone.
    pub fn unavailable(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
        error.retry_after_s = Some(LATER_S);
        error
    }

    /// Makes a 502: another server's failure, in words.
    pub fn remote(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, message).with_code(code)
    }

    /// Adds a stable code for programs.
    #[must_use]
    pub fn with_code(mut self, code: ErrorCode) -> Self {
        self.code = Some(code);
        self
    }

    /// Returns the body in OpenAI's format.
    ///
    /// For our own failures, only the first line is returned. libtorch puts its stack below it, which is for the log
    /// alone.
    pub fn body(&self) -> ErrorBody {
        let ours = self.status.is_server_error();
        let shown = self.message.lines().next().filter(|_| ours);
        ErrorBody {
            error: ErrorDetail {
                message: shown.unwrap_or(&self.message).to_owned(),
                kind: self.kind().to_owned(),
                param: self.param.clone(),
                code: self.code.clone(),
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

impl From<SamplerError> for ApiError {
    /// Failures of an account at another server are not the caller's: the caller's own key is right, and it owes us
    /// nothing.
    fn from(error: SamplerError) -> Self {
        let text = error.to_string();
        let mut answer = match error.failure() {
            SamplerFailure::Request => match error.param() {
                Some(param) => Self::field(param, text),
                None => Self::bad(text),
            },
            SamplerFailure::Context { n_prompt, context } => {
                Self::context_length(n_prompt, context)
            }
            SamplerFailure::UnknownModel => Self::unknown_model(text),
            SamplerFailure::Unauthorized => Self::remote(ErrorCode::SamplerUnauthorized, text),
            SamplerFailure::Payment => {
                let mut error =
                    Self::unavailable(text).with_code(ErrorCode::SamplerPaymentRequired);
                error.retry_after_s = Some(AFTER_PAYMENT_S);
                error
            }
            SamplerFailure::Busy => Self::busy(text),
            SamplerFailure::Unavailable => Self::unavailable(text),
            SamplerFailure::Remote => Self::remote(ErrorCode::SamplerFailed, text),
            SamplerFailure::Internal => Self::internal(text),
        };
        if let Some(after) = error.retry_after() {
            // A part of a second is rounded up, so that clients do not retry too early.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            answer.retry_after_s = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
        answer.code = error.code().cloned().or(answer.code);
        answer
    }
}

impl From<RenderError> for ApiError {
    fn from(error: RenderError) -> Self {
        let text = error.to_string();
        match error {
            RenderError::Message { index, field, .. } => {
                Self::unsupported(format!("messages[{index}].{field}"), text)
            }
            RenderError::Reserved { name } => {
                Self::field(format!("chat_template_kwargs.{name}"), text)
            }
            RenderError::NoTemplate { .. }
            | RenderError::NoMark
            | RenderError::Refused { .. }
            | RenderError::Failed(_) => {
                Self::field("messages", text).with_code(ErrorCode::TemplateRefused)
            }
        }
    }
}

impl From<EncodeError> for ApiError {
    fn from(error: EncodeError) -> Self {
        Self::bad(error.to_string())
    }
}

impl From<SplitReplyError> for ApiError {
    fn from(error: SplitReplyError) -> Self {
        let text = error.to_string();
        match error {
            SplitReplyError::Render(error) => error.into(),
            SplitReplyError::Encode(error) => error.into(),
            SplitReplyError::NotAReply { .. } => Self::field("messages", text),
            SplitReplyError::NotABeginning { .. } | SplitReplyError::NoEnd => {
                Self::field("messages", text).with_code(ErrorCode::TemplateRefused)
            }
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

    #[test]
    fn a_conversation_that_the_template_cannot_take_is_told_from_a_mistake() {
        let code = |error: RenderError| ApiError::from(error).body().error.code;
        let refused = RenderError::Refused {
            message: "roles must alternate".to_owned(),
        };
        let refused_code = Some(ErrorCode::TemplateRefused);
        assert_eq!(code(refused), refused_code);
        assert_eq!(
            code(RenderError::Failed("undefined".to_owned())),
            refused_code
        );
        let audio = RenderError::Message {
            index: 0,
            field: "content".to_owned(),
            value: "a part of type input_audio".to_owned(),
            allowed: "text",
        };
        assert_eq!(code(audio), Some(ErrorCode::UnsupportedValue));
        let reserved = RenderError::Reserved {
            name: "messages".to_owned(),
        };
        assert_eq!(code(reserved), None);
    }

    fn answered(error: SamplerError) -> (u16, String, Option<String>) {
        let error = ApiError::from(error);
        let code = error.body().error.code;
        let code = code.map(String::from).unwrap_or_default();
        let response = error.into_response();
        let after = response.headers().get(header::RETRY_AFTER);
        let after = after.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), code, after)
    }

    #[test]
    fn a_samplers_failure_has_the_status_that_a_client_acts_upon() {
        let of = |failure| answered(SamplerError::new(failure, "why"));
        let said = |status, code: &str, after: Option<&str>| {
            (status, code.to_owned(), after.map(str::to_owned))
        };
        let context = SamplerFailure::Context {
            n_prompt: 9,
            context: 8,
        };
        assert_eq!(of(context), said(400, "context_length_exceeded", None));
        assert_eq!(
            of(SamplerFailure::UnknownModel),
            said(404, "model_not_found", None)
        );
        let refused = of(SamplerFailure::Unauthorized);
        assert_eq!(refused, said(502, "sampler_unauthorized", None));
        let unpaid = of(SamplerFailure::Payment);
        assert_eq!(unpaid, said(503, "sampler_payment_required", Some("300")));
        assert_eq!(of(SamplerFailure::Busy), said(429, "queue_full", Some("1")));
        assert_eq!(of(SamplerFailure::Unavailable), said(503, "", Some("5")));
        assert_eq!(
            of(SamplerFailure::Remote),
            said(502, "sampler_failed", None)
        );
        let later = std::time::Duration::from_millis(6_100);
        let busy = SamplerError::new(SamplerFailure::Busy, "why").with_retry_after(later);
        assert_eq!(answered(busy).2.as_deref(), Some("7"));
        let field = ApiError::from(SamplerError::field("min_p", "min_p is 1"));
        assert_eq!(field.body().error.param.as_deref(), Some("min_p"));
    }
}
