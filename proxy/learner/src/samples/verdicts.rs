//! What each verdict method makes of the verdicts of a batch.

use std::{collections::BTreeSet, sync::Arc};

use metaclaw_chat::Score;
use metaclaw_turns::Turn;

use super::{
    baselines::Baselines,
    turns::{sampled_fairly, score},
};
use crate::{
    config::VerdictMethod,
    methods::{by_batch, by_bucket},
};

/// The greatest advantage: in a large batch a rare verdict is many standard deviations from the mean.
pub(super) const MOST: f32 = 5.0;

/// The advantage of each turn; 0 where its verdict pushes nothing.
pub(super) fn advantages(
    method: VerdictMethod,
    turns: &[&Arc<Turn>],
    baselines: Baselines,
) -> Vec<f32> {
    let given = match method {
        VerdictMethod::BinaryRl => turns.iter().map(|it| baselines.advantage(it)).collect(),
        VerdictMethod::Hybrid => turns.iter().map(|it| reward(it)).collect(),
        VerdictMethod::Grpo => by_bucket(&with_prompts(turns)),
        VerdictMethod::Metaclaw => metaclaw(turns),
    };
    let pushed = given.into_iter().zip(turns).map(|(given, turn)| {
        let is_pushed = method.takes(score(turn)) && sampled_fairly(turn);
        if is_pushed {
            given.clamp(-MOST, MOST)
        } else {
            0.0
        }
    });
    pushed.collect()
}

fn reward(turn: &Turn) -> f32 {
    let verdict = turn.verdict.as_ref();
    verdict.map_or(0.0, |it| it.weight * it.score.value())
}

/// Siblings are replies to the same ids.
fn with_prompts<'a>(turns: &[&'a Arc<Turn>]) -> Vec<(&'a [u32], f32)> {
    let prompt = |turn: &'a Arc<Turn>| turn.tokens.as_ref().map(|it| it.prompt_ids.as_slice());
    let each = turns.iter();
    each.map(|turn| (prompt(turn).unwrap_or_default(), reward(turn)))
        .collect()
}

/// The Python original's: centred over all of the batch, those among them that push nothing; of each session at least one turn
/// is pushed if something followed it, though its verdict is unclear.
fn metaclaw(turns: &[&Arc<Turn>]) -> Vec<f32> {
    let verdict = |turn: &Turn| {
        let verdict = turn.verdict.as_ref();
        // It has no use for what is judged without what followed it.
        verdict.filter(|it| !it.at_session_end).map(|it| it.score)
    };
    let rewards = turns.iter().map(|it| verdict(it).map_or(0.0, Score::value));
    let given = by_batch(&rewards.collect::<Vec<_>>());
    let mut sessions = BTreeSet::new();
    let each = turns
        .iter()
        .zip(given)
        .map(|(turn, given)| match verdict(turn) {
            Some(Score::Good | Score::Bad) => {
                sessions.insert(turn.id.session);
                given
            }
            Some(Score::Unclear) if sessions.insert(turn.id.session) => given,
            Some(Score::Unclear) | None => 0.0,
        });
    each.collect()
}

/// Whether a turn is another reply to what one of these replied to.
pub(super) fn siblings_of(turns: &[&Arc<Turn>], other: &Turn) -> bool {
    let of = |turn: &Turn| turn.tokens.as_ref().map(|it| it.prompt_ids.clone());
    let prompt = of(other);
    prompt.is_some() && turns.iter().any(|turn| of(turn) == prompt)
}
