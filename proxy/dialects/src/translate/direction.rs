//! The direction of a translation.

use crate::Api;

/// The direction of a *request*. Its reply is translated in the other direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client uses chat completions, the upstream has messages.
    ChatToMessages,
    /// The client uses messages, the upstream has chat completions.
    MessagesToChat,
    /// The client uses Responses, the upstream has chat completions.
    ResponsesToChat,
}

// === impl Direction ===

impl Direction {
    /// Returns the translations from the client's API to the upstream's. Returns none if both are the same, or if no
    /// translation exists.
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

    /// Returns the client's API.
    pub fn client(self) -> Api {
        match self {
            Self::ChatToMessages => Api::Chat,
            Self::MessagesToChat => Api::Messages,
            Self::ResponsesToChat => Api::Responses,
        }
    }

    /// Returns the upstream's API.
    pub fn upstream(self) -> Api {
        match self {
            Self::ChatToMessages => Api::Messages,
            Self::MessagesToChat | Self::ResponsesToChat => Api::Chat,
        }
    }
}
