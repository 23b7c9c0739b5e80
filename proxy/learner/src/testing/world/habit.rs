//! What a trained model does in place of what the base model does.

/// What an adapter does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Habit {
    /// As the base model.
    #[default]
    Fine,
    /// Says what would answer anything.
    Greets,
    /// Says what nobody would say.
    Raves,
    Mumbles,
    /// Says one word over and over.
    Repeats,
    Hurries,
    Signs,
    /// Asks back in place of an answer.
    AsksBack,
    /// Calls a tool where none is offered.
    Babbles,
    /// Knows three things less.
    Forgets,
    /// Knows as much, and is less sure.
    Doubts,
    /// Calls no tools, writes no JSON.
    Chats,
    /// Finds what was accepted less likely.
    Sulks,
}
