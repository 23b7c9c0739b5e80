//! What the samples of a step are like, in numbers.

use std::collections::BTreeMap;

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::{Tokens, Turn};

use super::{
    super::{group::Group, turns::score},
    Batch, REDO,
};
use crate::lineage::{BatchStats, Spread};

// === impl Batch ===

impl Batch {
    /// What its samples are like; `groups` are those that it makes.
    pub(crate) fn stats(&self, groups: &[Group]) -> BatchStats {
        let turns = self.by_id();
        let turns = || turns.values().copied();
        let tokens = || turns().filter_map(|turn| turn.tokens.as_ref());
        let mut samples = BTreeMap::new();
        for group in groups {
            // A sample of redo is a turn, of which several replies may be taught.
            let n = if group.method == REDO {
                self.redo.len()
            } else {
                group.sequences.len()
            };
            *samples.entry(group.method.to_owned()).or_default() += n;
        }
        let advantages = self.pushed.iter().map(|it| f64::from(it.advantage));
        let advantages = advantages.filter(|given| *given != 0.0);
        let scores: Vec<Score> = turns().filter_map(score).collect();
        let is_good = |score: &Score| f64::from(u8::from(*score == Score::Good));
        let is_cut = |turn: &Turn| turn.meta.finish_reason.as_deref() == Some("length");
        BatchStats {
            samples,
            reward: Spread::of(scores.iter().map(|score| f64::from(score.value()))),
            success_rate: Spread::of(scores.iter().map(is_good)).mean,
            advantage: Spread::of(advantages),
            response_len: Spread::of(tokens().map(|it| it.ids.len() as f64)),
            logprob: Spread::of(tokens().filter_map(mean_logprob)),
            truncated_ratio: Spread::of(turns().map(|it| f64::from(u8::from(is_cut(it))))).mean,
            version: Spread::of(tokens().filter_map(|it| it.version).map(|it| it as f64)),
        }
    }

    /// The scores of its turns.
    pub(crate) fn scores(&self) -> BTreeMap<TurnId, Score> {
        let turns = self.by_id().into_iter();
        turns
            .filter_map(|(id, turn)| Some((id, score(turn)?)))
            .collect()
    }
}

fn mean_logprob(tokens: &Tokens) -> Option<f64> {
    let n = tokens.logprobs.len();
    let sum: f64 = tokens.logprobs.iter().copied().map(f64::from).sum();
    (n > 0).then(|| sum / n as f64)
}
