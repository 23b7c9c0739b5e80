//! Why a request of a browser fails, shown as a page.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::html;
use metaclaw_control::operation::{OperationFailure, with_causes};

use crate::layout::bare;

#[derive(Debug)]
pub(crate) struct PageFailure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

// === impl PageFailure ===

impl PageFailure {
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            message: message.into(),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: message.into(),
        }
    }
}

impl From<OperationFailure> for PageFailure {
    fn from(failure: OperationFailure) -> Self {
        Self {
            status: failure.kind.status(),
            message: with_causes(&failure.error),
        }
    }
}

impl IntoResponse for PageFailure {
    fn into_response(self) -> Response {
        let title = match self.status {
            StatusCode::NOT_FOUND => "Not here",
            StatusCode::BAD_REQUEST => "Not understood",
            StatusCode::CONFLICT => "Not done",
            _ => "No answer",
        };
        let body = html! {
            h1 { (title) }
            p.lead { (self.message) }
            p { "Nothing was changed. Go back in your browser, or " a href="/ui" { "to the first page" } "." }
        };
        (self.status, bare(title, &body)).into_response()
    }
}
