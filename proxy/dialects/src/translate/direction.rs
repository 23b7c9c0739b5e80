//! From which API to which.

use crate::Api;

/// What a *request* becomes. Its reply goes the other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client speaks chat completions, the upstream messages.
    ChatToMessages,
    /// The client speaks messages, the upstream chat completions.
    MessagesToChat,
    /// The client speaks Responses, the upstream chat completions.
    ResponsesToChat,
}

// === impl Direction ===

impl Direction {
    /// The steps from what the client speaks to what the upstream speaks. None, where they speak the same, or where
    /// one cannot be said in the other.
    pub fn path(client: Api, upstream: Api) -> &'static [Self] {
        match (client, upstream) {
            (Api::Chat, Api::Messages) => &[Self::ChatToMessages],
            (Api::Messages, Api::Chat) => &[Self::MessagesToChat],
            (Api::Responses, Api::Chat) => &[Self::ResponsesToChat],
            (Api::Responses, Api::Messages) => &[Self::ResponsesToChat, Self::ChatToMessages],
            (Api::Chat, Api::Chat | Api::Responses)
            | (Api::Messages, Api::Messages | Api::Responses)
            | (Api::Responses, Api::Responses) => &[],
        }
    }

    /// What the client speaks.
    pub fn client(self) -> Api {
        match self {
            Self::ChatToMessages => Api::Chat,
            Self::MessagesToChat => Api::Messages,
            Self::ResponsesToChat => Api::Responses,
        }
    }

    /// What the upstream speaks.
    pub fn upstream(self) -> Api {
        match self {
            Self::ChatToMessages => Api::Messages,
            Self::MessagesToChat | Self::ResponsesToChat => Api::Chat,
        }
    }
}
