//! Code of the methods that give a turn's own ids an advantage by its verdict.

use std::sync::Arc;

use metaclaw_turns::Turn;

use super::method::{Example, Group, Method, NotAnExample, Objective, Want};
use crate::sample::{Batch, ExcludeReason, MAX_ADVANTAGE, Push, datum, sampled_fairly, score};

pub(super) fn wants(method: &dyn Method, turn: &Turn) -> Want {
    if !method.takes(score(turn)) {
        return Want::Never(ExcludeReason::Unclear);
    }
    if !sampled_fairly(turn) {
        return Want::Never(ExcludeReason::BadSampling);
    }
    Want::Own
}

pub(super) fn reward(turn: &Turn) -> f32 {
    let verdict = turn.verdict.as_ref();
    verdict.map_or(0.0, |verdict| verdict.weight * verdict.score.value())
}

/// Returns the policy loss on the ids of each turn. Each turn has the same weight: w/(B·|M|) for each id, with a
/// limited advantage.
pub(super) fn per_turn(
    method: &'static dyn Method,
    batch: &Batch,
    objective: &Objective,
) -> Result<Group, NotAnExample> {
    let share = objective.w_rl / pushed(batch).count().max(1) as f32;
    let weigh = |push: &Push, n_ids: usize| {
        let each = share / n_ids.max(1) as f32;
        let bounded = push.advantages(n_ids, MAX_ADVANTAGE);
        bounded.map(|advantage| each * advantage).collect()
    };
    group(method, batch, objective, weigh)
}

/// Returns the policy loss on the ids of each turn, with the weights from `weigh`.
///
/// # Shapes
/// `weigh` gets the number R of a reply's ids, and returns `[R]`.
pub(super) fn group(
    method: &'static dyn Method,
    batch: &Batch,
    objective: &Objective,
    weigh: impl Fn(&Push, usize) -> Vec<f32>,
) -> Result<Group, NotAnExample> {
    let examples = pushed(batch).filter_map(|(turn, push)| {
        let tokens = turn.tokens.as_ref()?;
        let advantages = weigh(push, tokens.ids.len());
        let datum = datum::verdict(tokens, &advantages);
        Some(Example::new(vec![turn.id], datum))
    });
    Ok(Group {
        method,
        loss: objective.policy_loss.loss,
        loss_config: objective.policy_loss.config.clone(),
        examples: examples.collect::<Result<_, _>>()?,
    })
}

fn pushed(batch: &Batch) -> impl Iterator<Item = (&Arc<Turn>, &Push)> + Clone {
    let pushed = batch.pushed();
    let pushed = pushed.filter_map(|sample| Some((&sample.turn, sample.push.as_ref()?)));
    pushed.filter(|(_, push)| push.advantage != 0.0 || push.teacher_delta.is_some())
}
