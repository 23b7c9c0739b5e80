//! Why a chat request is refused before anybody is asked.

use metaclaw_chat::MessageError;

/// What is wrong with a chat request, where, and what is allowed. Holds no text of the caller's.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The body is no text.
    #[error("the request body is no JSON object: byte {at} is no UTF-8")]
    NotUtf8 {
        /// Where, from 0.
        at: usize,
    },
    /// The body is no JSON.
    #[error("the request body is no JSON object: {0}")]
    NotJson(#[source] serde_json::Error),
    /// The body is JSON of another kind.
    #[error("the request body is no JSON object: it is {found}")]
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// There is no conversation.
    #[error("messages: {found}; it must be an array of at least one message")]
    NoMessages {
        /// What there is instead.
        found: &'static str,
    },
    /// An element of the conversation is no message.
    #[error("{field}[{index}]: {source}")]
    BadMessage {
        /// The field that holds the conversation.
        field: &'static str,
        /// Which element, from 0.
        index: usize,
        source: MessageError,
    },
}

// === impl RequestError ===

impl RequestError {
    /// The field at fault, as in `messages[2]`.
    pub fn param(&self) -> Option<String> {
        match self {
            Self::NotUtf8 { .. } | Self::NotJson(_) | Self::NotAnObject { .. } => None,
            Self::NoMessages { .. } => Some("messages".to_owned()),
            Self::BadMessage { field, index, .. } => Some(format!("{field}[{index}]")),
        }
    }
}
