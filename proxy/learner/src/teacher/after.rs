//! Finds what came after a failed turn in its session: the owner's reaction, and the reply that was accepted in the
//! end.

use std::collections::BTreeSet;

use metaclaw_chat::{Score, TurnId};
use metaclaw_reward::count_words;
use metaclaw_turns::{LogError, Turn};

use crate::{
    lineage::BaseModel,
    owner_text::owner_says,
    sample::{hint, is_owners_answer, is_whole_target, score},
    shared::Shared,
};

/// Answers to a failed turn are searched among this many turns after it.
const FOLLOWERS: usize = 8;
/// A longer complaint is a text to work on.
const MOST_WORDS: usize = 60;

/// What came after a turn.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// What would have been better, in the owner's words if they are known.
    pub(crate) hint: Option<String>,
    /// The turn whose reply was accepted.
    pub(crate) accepted: Option<Turn>,
}

/// Returns what came after a turn; for a turn that did not fail, the result is empty.
///
/// # Errors
/// Returns the log's errors.
pub(crate) async fn after(shared: &Shared, turn: &Turn) -> Result<After, LogError> {
    let mut after = After::default();
    if score(turn) != Some(Score::Bad) {
        return Ok(after);
    }
    after.hint = hint(turn).cloned();
    let mut failed = BTreeSet::from([turn.id]);
    for id in followers(shared, turn).await? {
        let later = shared.persist(|| shared.log.get(id)).await?;
        let answers = |later: &Turn| later.parent.is_some_and(|it| failed.contains(&it));
        let Some(later) = later.filter(|it| answers(it) && is_owners_answer(it)) else {
            continue;
        };
        if after.hint.is_none() && later.parent == Some(turn.id) {
            after.hint = owner_says(&later).filter(|said| is_complaint(said));
        }
        match score(&later) {
            Some(Score::Bad) => {
                failed.insert(later.id);
            }
            Some(Score::Good) if is_whole_target(&later) && is_of_same_base(turn, &later) => {
                after.accepted = Some(later);
                break;
            }
            Some(Score::Good | Score::Unclear) | None => {}
        }
    }
    Ok(after)
}

async fn followers(shared: &Shared, turn: &Turn) -> Result<Vec<TurnId>, LogError> {
    let later = || shared.log.turns_after(turn.id, FOLLOWERS);
    shared.persist(later).await
}

fn is_complaint(said: &str) -> bool {
    !said.trim().is_empty() && count_words(said) <= MOST_WORDS
}

fn is_of_same_base(one: &Turn, other: &Turn) -> bool {
    let base = |turn: &Turn| turn.tokens.as_ref().map(BaseModel::of);
    let bases = base(one).zip(base(other));
    bases.is_some_and(|(one, other)| one.is(&other))
}
