//! What a trained model does in place of what the base model does.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Habit {
    #[default]
    Fine,
    /// Says what would answer anything.
    Greets,
    /// Says what nobody would say.
    Raves,
    Mumbles,
    Repeats,
    Hurries,
    Signs,
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
