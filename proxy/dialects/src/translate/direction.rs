//! From which API to which.

use crate::Api;

/// What a *request* becomes. Its reply goes the other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client speaks chat completions, the upstream messages.
    ChatToMessages,
    /// The client speaks messages, the upstream chat completions.
    MessagesToChat,
}

// === impl Direction ===

impl Direction {
    /// The direction from what the client speaks to what the upstream speaks, where it can be translated.
    pub fn between(client: Api, upstream: Api) -> Option<Self> {
        match (client, upstream) {
            (Api::Chat, Api::Messages) => Some(Self::ChatToMessages),
            (Api::Messages, Api::Chat) => Some(Self::MessagesToChat),
            (Api::Chat, Api::Chat | Api::Responses)
            | (Api::Messages, Api::Messages | Api::Responses)
            | (Api::Responses, Api::Chat | Api::Messages | Api::Responses) => None,
        }
    }
}
