//! The method of MetaClaw's Python original: the advantage of a turn's ids is how much better its verdict is than the
//! others of its batch. The loss is importance sampling, summed over all ids of a batch, so that long replies count
//! more; there is no limit.

use std::{collections::BTreeSet, sync::Arc};

use metaclaw_chat::Score;
use metaclaw_trainer_api::LossFn;
use metaclaw_turns::Turn;

use super::{
    method::{Compares, Group, Method, NotAnExample, Objective, TrainingSignal, Want},
    policy_gradient,
};
use crate::{
    formulas::by_batch,
    sample::{Baselines, Batch, Teaching},
};

#[derive(Debug)]
pub(super) struct Metaclaw;

// === impl Metaclaw ===

impl Method for Metaclaw {
    fn name(&self) -> &'static str {
        "metaclaw"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[TrainingSignal::Verdict]
    }

    fn wants(&self, turn: &Turn, _teaching: Teaching<'_>) -> Want {
        policy_gradient::wants(self, turn)
    }

    /// An unclear verdict counts in the mean, and its turn may be the only one of its session.
    fn takes(&self, score: Option<Score>) -> bool {
        score.is_some()
    }

    fn compares(&self) -> Compares {
        Compares::Batch
    }

    /// The mean is over the whole batch, including turns without an advantage. At least one turn of each session gets
    /// an advantage if something followed it, even if its verdict is unclear.
    fn advantages(&self, turns: &[&Arc<Turn>], _baselines: Baselines) -> Vec<f32> {
        let rewards = turns
            .iter()
            .map(|turn| followed(turn).map_or(0.0, Score::value));
        let given = by_batch(&rewards.collect::<Vec<_>>());
        let mut sessions = BTreeSet::new();
        let each = turns.iter().zip(given);
        let each = each.map(|(turn, given)| match followed(turn) {
            Some(Score::Good | Score::Bad) => {
                sessions.insert(turn.id.session);
                given
            }
            Some(Score::Unclear) if sessions.insert(turn.id.session) => given,
            Some(Score::Unclear) | None => 0.0,
        });
        each.collect()
    }

    fn usual_loss(&self) -> LossFn {
        LossFn::ImportanceSampling
    }

    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        policy_gradient::group(&Self, batch, objective, |push, n_ids| {
            push.advantages(n_ids, f32::MAX).collect()
        })
    }
}

/// Returns the score of a turn that something followed; the original does not use other turns.
fn followed(turn: &Turn) -> Option<Score> {
    let verdict = turn.verdict.as_ref();
    verdict.filter(|v| !v.at_session_end).map(|v| v.score)
}
