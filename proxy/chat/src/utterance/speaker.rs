//! Whose words a user's message has.

/// Whose words they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The owner's, as far as the message tells.
    Owner,
    /// One of several people's in a group.
    Group,
    /// Somebody else's, that were passed on, or what the agent brings by itself for somebody to answer.
    Forwarded,
    /// Nobody's: the client or the model wrote all of it in the user's place.
    Client,
}
