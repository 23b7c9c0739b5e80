//! Why a chat request is refused before it is sent to an upstream.

use metaclaw_chat::MessageError;

/// What is wrong with a chat request, where, and what is allowed. It contains no text of the caller.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The body is not UTF-8.
    #[error("the request body is no JSON object: byte {at} is no UTF-8")]
    NotUtf8 {
        /// The position, from 0.
        at: usize,
    },
    /// The body is not JSON.
    #[error("the request body is no JSON object: {0}")]
    NotJson(#[source] serde_json::Error),
    /// The body is another JSON value.
    #[error("the request body is no JSON object: it is {found}")]
    NotAnObject {
        /// The type of the value.
        found: &'static str,
    },
    /// There is no conversation.
    #[error("messages: {found}; it must be an array of at least one message")]
    NoMessages {
        /// The type of the value instead.
        found: &'static str,
    },
    /// An element of the conversation is not a message.
    #[error("{field}[{index}]: {source}")]
    BadMessage {
        /// The field with the conversation.
        field: &'static str,
        /// The index of the element, from 0.
        index: usize,
        source: MessageError,
    },
}

// === impl RequestError ===

impl RequestError {
    /// Returns the field at fault, for example `messages[2]`.
    pub fn param(&self) -> Option<String> {
        match self {
            Self::NotUtf8 { .. } | Self::NotJson(_) | Self::NotAnObject { .. } => None,
            Self::NoMessages { .. } => Some("messages".to_owned()),
            Self::BadMessage { field, index, .. } => Some(format!("{field}[{index}]")),
        }
    }
}
