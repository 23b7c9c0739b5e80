//! What the owner says in a turn, in own words.

use metaclaw_chat::{Speaker, Utterance};
use metaclaw_turns::{Turn, TurnKind};

/// What the owner typed, of the messages that are new in a turn. Tools, other people and texts that were passed on have
/// no say: none.
pub(crate) fn owner_says(turn: &Turn) -> Option<String> {
    if turn.meta.kind != TurnKind::Main {
        return None;
    }
    let message = turn.evidence().iter().rev().find(|it| it.is_owners())?;
    let text = message.text();
    let utterance = Utterance::parse(&text);
    match utterance.speaker {
        Speaker::Owner => Some(utterance.text.into_owned()),
        Speaker::Group | Speaker::Forwarded => None,
    }
}
