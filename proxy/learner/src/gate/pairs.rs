//! Pairs of replies to one prompt, from held-out sessions: the reply that failed, and the reply that was accepted after
//! it.

use std::collections::BTreeMap;

use metaclaw_chat::Score;
use metaclaw_turns::{LogError, StateKind, Turn};

use super::preference::PreferencePair;
use crate::{
    lineage::{BaseModel, Candidate},
    sample::score,
    shared::Shared,
    teacher::after,
};

/// The largest number of pairs in a test; the newest are used.
const MOST: usize = 64;
/// The number of held-out turns that are searched for pairs.
const LOOK_BACK: usize = 256;
/// The largest number of ids of all prompts together, so that long conversations give fewer pairs and the test takes no
/// longer.
const MOST_PROMPT: usize = 2_048;

/// Returns the newest pairs under the current wishes, with ids of this base model. A reply that was accepted under
/// other wishes may not fit the current ones.
pub(crate) async fn pairs(
    shared: &Shared,
    candidate: &Candidate,
    base: Option<&str>,
) -> Result<Vec<PreferencePair>, LogError> {
    let agent = &candidate.agent;
    // Which lines an adapter is told depends on what it does without them.
    let mut told = BTreeMap::new();
    let mut is_told_now = |turn: &Turn| {
        let adapter = turn.served.adapter.as_deref();
        let now = told.entry(adapter.map(str::to_owned)).or_insert_with(|| {
            let library = shared.library.as_ref();
            let lessons = library.map(|library| library.lessons_for(agent, "", adapter));
            lessons.map_or_else(Vec::new, |it| it.where_answers(adapter).wish_ids.clone())
        });
        turn.served.wish_ids == *now
    };
    let held_out = shared.persist(|| shared.log.in_state(agent, StateKind::HeldOut));
    let (mut pairs, mut n_prompt) = (Vec::new(), 0);
    for id in held_out.await?.into_iter().rev().take(LOOK_BACK) {
        let Some(turn) = shared.persist(|| shared.log.get(id)).await? else {
            continue;
        };
        let is_of_base = |turn: &Turn| {
            let tokens = turn.tokens.as_ref();
            tokens.is_some_and(|tokens| BaseModel::of(tokens).may_be(base))
        };
        if score(&turn) != Some(Score::Bad) || !is_told_now(&turn) || !is_of_base(&turn) {
            continue;
        }
        let accepted = after(shared, &turn).await?.accepted;
        let Some(pair) = accepted.and_then(|accepted| pair(turn, accepted)) else {
            continue;
        };
        n_prompt += pair.prompt.len();
        if n_prompt > MOST_PROMPT || pairs.len() == MOST {
            break;
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

/// Builds a pair of both replies as they were sampled, after the prompt of the failed one.
fn pair(failed: Turn, accepted: Turn) -> Option<PreferencePair> {
    let id = failed.id;
    let (failed, accepted) = (failed.tokens?, accepted.tokens?);
    let pair = PreferencePair {
        id,
        prompt: failed.prompt_ids,
        accepted: accepted.ids,
        failed: failed.ids,
    };
    let is_whole = [&pair.prompt, &pair.accepted, &pair.failed]
        .iter()
        .all(|it| !it.is_empty());
    is_whole.then_some(pair)
}
