//! Finds the turn whose outcome another turn shows.

use metaclaw_chat::{Message, Role, owners_words};
use metaclaw_turns::{LogError, Turn, TurnKind};

use crate::shared::Shared;

/// The owner's turn is searched before at most this many errands in a row, because a sub-agent may send many.
pub(super) const MOST_ERRANDS: usize = 200;

#[derive(Debug)]
pub(super) struct Followed {
    pub before: Turn,
    /// The index in the other's request where the reaction begins.
    pub new_from: usize,
}

/// Returns the owner's turn whose outcome a turn shows, or `None` if the turn begins a conversation.
pub(super) async fn followed(shared: &Shared, turn: &Turn) -> Result<Option<Followed>, LogError> {
    let mut parent = turn.parent;
    for _ in 0..MOST_ERRANDS {
        let Some(id) = parent else { break };
        let before = shared.persist(|| shared.log.meta(id)).await?;
        let Some((meta, earlier)) = before else { break };
        if meta.kind == TurnKind::Main {
            let before = shared.turn(id).await?;
            let new_from = turn.new_from;
            return Ok(before.map(|before| Followed { before, new_from }));
        }
        parent = earlier;
    }
    summed_up(shared, turn).await
}

/// Does the same if the conversation was compacted between the two turns.
async fn summed_up(shared: &Shared, turn: &Turn) -> Result<Option<Followed>, LogError> {
    let Some(new_from) = new_words_behind_more(&turn.request.messages) else {
        return Ok(None);
    };
    let earlier = shared.persist(|| shared.log.turns_before(turn.id, MOST_ERRANDS));
    let mut has_errand = false;
    for id in earlier.await? {
        let meta = shared.persist(|| shared.log.meta(id)).await?;
        let Some((meta, _)) = meta else { continue };
        if meta.kind != TurnKind::Main {
            has_errand |= meta.kind == TurnKind::Side;
            continue;
        }
        // Without an errand between them, it is another conversation of the same name.
        if !has_errand {
            break;
        }
        let before = shared.turn(id).await?;
        let before = before.filter(|before| !said_before(before, &turn.request.messages));
        return Ok(before.map(|before| Followed { before, new_from }));
    }
    Ok(None)
}

/// Returns the index of the owner's last words, if nothing answers them yet and something comes before them: a summary,
/// or the kept part of the conversation.
fn new_words_behind_more(messages: &[Message]) -> Option<usize> {
    let (at, words) = owners_words(messages).next()?;
    let is_answered = messages[at + 1..]
        .iter()
        .any(|message| matches!(message.role(), Role::Assistant | Role::Tool));
    let is_behind = messages[..at].iter().any(|m| m.role() != Role::System);
    let has_more = || words.text.len() < messages[at].text().trim().len();
    (!is_answered && (is_behind || has_more())).then_some(at)
}

fn said_before(before: &Turn, messages: &[Message]) -> bool {
    let last = |messages: &[Message]| {
        let said = owners_words(messages).next();
        said.map(|(_, words)| words.text.into_owned())
    };
    last(&before.request.messages) == last(messages)
}
