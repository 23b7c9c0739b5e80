//! Finds the owner's own words in a turn.

use metaclaw_turns::{Turn, TurnKind};

/// What the owner typed, of the messages that are new in a turn. Tools, other people, texts that were passed on, clients
/// and errands have no say: none.
pub(crate) fn owner_says(turn: &Turn) -> Option<String> {
    let words = turn
        .new_words()
        .filter(|_| turn.meta.kind == TurnKind::Main)?;
    Some(words.text.into_owned())
}
