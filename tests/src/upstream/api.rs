//! The three APIs side by side.

use serde_json::Value;

use super::{
    chat, messages,
    play::{Failure, Reply},
    responses,
};

/// Returns the route for replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    Responses,
    Messages,
}

impl Api {
    pub(super) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Messages),
            _ => None,
        }
    }

    /// The events of a streamed reply.
    pub(super) fn events(self, reply: &Reply) -> Vec<String> {
        match self {
            Self::Chat => chat::events(reply),
            Self::Responses => responses::events(reply),
            Self::Messages => messages::events(reply),
        }
    }

    /// A reply that is not streamed.
    pub(super) fn whole(self, reply: &Reply) -> Value {
        match self {
            Self::Chat => chat::whole(reply),
            Self::Responses => responses::whole(reply),
            Self::Messages => messages::whole(reply),
        }
    }

    /// Returns the body of an error.
    pub(super) fn error(self, failure: Failure) -> Value {
        match self {
            Self::Chat | Self::Responses => chat::error(failure),
            Self::Messages => messages::error(failure),
        }
    }

    /// Returns the headers of an error that tell a client how long to wait.
    pub(super) fn limits(self, failure: Failure) -> &'static [(&'static str, &'static str)] {
        match (self, failure) {
            (_, Failure::Server | Failure::ContextOverflow) => &[],
            (Self::Chat | Self::Responses, Failure::RateLimit) => &[
                ("retry-after", "1"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-request-id", "req_scripted"),
            ],
            (Self::Messages, Failure::RateLimit) => &[
                ("retry-after", "1"),
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("request-id", "req_scripted"),
            ],
        }
    }

    /// Returns whether the conversation already contains a tool's result.
    pub(super) fn has_result(self, request: &Value) -> bool {
        match self {
            Self::Chat => chat::has_result(request),
            Self::Responses => responses::has_result(request),
            Self::Messages => messages::has_result(request),
        }
    }
}
