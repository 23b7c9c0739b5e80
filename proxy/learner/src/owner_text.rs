//! Finds the owner's own words in a turn.

use metaclaw_turns::{Turn, TurnKind};

/// Returns what the owner typed in the messages that are new in a turn. Words of tools, other people, quoted texts,
/// clients and errands are left out.
pub(crate) fn owner_says(turn: &Turn) -> Option<String> {
    let words = turn
        .new_words()
        .filter(|_| turn.meta.kind == TurnKind::Main)?;
    Some(words.text.into_owned())
}
