//! Whether an adapter finds what its owner accepted likelier than what she did not, as the base model does.
//!
//! Of each pair both replies follow the same prompt, of a session that was held out. An adapter is declined only where it is
//! nearly sure that it prefers what was accepted less than the base does: pairs are few and replies differ in much.
//!
//! Pairs of replies to one prompt, from held-out sessions: the reply that failed, and the reply that was accepted after
//! it.

use std::collections::BTreeMap;

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{BackendError, RunId};
use metaclaw_turns::{LogError, StateKind, Turn};

use super::report::{Bound, GateTest};
use crate::{
    formulas::{lower_bound, upper_bound},
    lineage::{BaseModel, Candidate},
    policy::{By, PolicyModel, ScoredPair},
    sample::score,
    shared::Shared,
    teacher::after,
};

const FEWEST: usize = 12;
/// Pairs that are looked at before it is asked whether more are needed.
const AT_ONCE: usize = 16;
/// Ids of a reply that are scored: which of two one would rather give shows from their first words on.
const SCORED: usize = 32;
/// In nat a token; what is lost beyond it is too much.
const LEAST: f64 = -0.05;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreferencePair {
    pub(crate) id: TurnId,
    pub(crate) prompt: Vec<u32>,
    pub(crate) accepted: Vec<u32>,
    pub(crate) failed: Vec<u32>,
}

/// By how much a model prefers what was accepted, in nat a token, by pair.
pub(super) type Margins = BTreeMap<TurnId, f64>;

/// How much more, or less, an adapter prefers what was accepted than the base model does, whose margins are kept in `base`: of
/// these pairs alone.
pub(super) async fn test(
    policy: &PolicyModel,
    run: &RunId,
    base: &mut Margins,
    pairs: &[PreferencePair],
) -> Result<GateTest, BackendError> {
    let n = pairs.len();
    if n < FEWEST {
        let why = format!(
            "of turns that were held out, and whose second reply was liked, there are {n}, and {FEWEST} are needed"
        );
        return Ok(GateTest::skipped("preference", &why));
    }
    base.retain(|id, _| pairs.iter().any(|pair| pair.id == *id));
    let mut gained: Vec<f64> = Vec::new();
    for some in pairs.chunks(AT_ONCE) {
        let new = some.iter().filter(|pair| !base.contains_key(&pair.id));
        let new = margins(policy, By::Base, new).await?;
        base.extend(new);
        let own = margins(policy, By::Run(run), some.iter()).await?;
        gained.extend(own.iter().filter_map(|(id, own)| Some(own - base.get(id)?)));
        // It is as sure that the adapter is good enough as it would have to be that it is not.
        if gained.len() >= FEWEST && lower_bound(&gained) >= LEAST {
            break;
        }
    }
    let n = gained.len();
    let unit = format!(
        "nat a token at most for what was accepted, beside the base, by 90 % and {n} pairs"
    );
    let bound = upper_bound(&gained);
    Ok(GateTest::measured(
        "preference",
        bound,
        Bound::AtLeast,
        LEAST,
        &unit,
    ))
}

async fn margins<'a>(
    policy: &PolicyModel,
    by: By<'_>,
    pairs: impl Iterator<Item = &'a PreferencePair> + Clone,
) -> Result<Margins, BackendError> {
    let replies = pairs.clone().flat_map(|pair| {
        let prompt = &pair.prompt;
        [&pair.accepted, &pair.failed].map(|reply| ScoredPair { prompt, reply })
    });
    let replies: Vec<ScoredPair<'_>> = replies.collect();
    let scores = policy.score(by, &replies, SCORED).await?;
    let margins = scores.chunks_exact(2).map(|both| both[0] - both[1]);
    Ok(pairs.map(|pair| pair.id).zip(margins).collect())
}

const MOST: usize = 64;
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
            lessons.map_or_else(Vec::new, |k| k.where_answers(adapter).wish_ids.clone())
        });
        turn.served.wish_ids == *now
    };
    let held_out = shared.in_state(agent, StateKind::HeldOut);
    let (mut pairs, mut n_prompt) = (Vec::new(), 0);
    for id in held_out.await?.into_iter().rev().take(LOOK_BACK) {
        let Some(turn) = shared.turn(id).await? else {
            continue;
        };
        let is_of_base = |turn: &Turn| {
            let tokens = turn.tokens.as_ref();
            tokens.is_some_and(|tokens| BaseModel::of_tokens(tokens).may_be(base))
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
        .all(|ids| !ids.is_empty());
    is_whole.then_some(pair)
}
