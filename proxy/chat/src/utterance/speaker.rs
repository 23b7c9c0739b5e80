//! Whose words a user message contains.

/// The author of a user message's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The owner, as far as the message shows.
    Owner,
    /// One of several people in a group.
    Group,
    /// Somebody else whose words were forwarded, or the agent itself with a text that needs an answer.
    Forwarded,
    /// Nobody: the client or the model wrote all of it in the user's role.
    Client,
}
