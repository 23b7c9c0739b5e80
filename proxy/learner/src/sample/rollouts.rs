//! Groups of rollouts, the advantage of each turn, and the batch that they make.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{RolloutId, TurnId};
use metaclaw_turns::{Rollout, RolloutMark, RolloutState, Turn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    batch::{Batch, GroupOutcomes},
    exclude_reason::ExcludeReason,
    hints::HintedPrompts,
    types::{MAX_ADVANTAGE, Push, RolloutPush, Sample},
};
use crate::formulas::{by_bucket_double, single};

/// The largest number of rollouts in a step that somebody asked for.
pub(crate) const MOST_ROLLOUTS: usize = 512;

/// `rl.rollouts.advantage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdvantageForm {
    /// The outcomes of a group's rollouts.
    Group,
    /// The rewards of the turns that have the same number in their rollouts.
    Step,
}

/// A group whose rollouts are all closed.
#[derive(Debug, Clone)]
pub(crate) struct RolloutGroup {
    /// The rollouts that have an outcome, in the order in which they were opened.
    pub(crate) rollouts: Vec<Rollout>,
    /// The turns of these that are to be trained on, those of one rollout in a row and in their order.
    pub(crate) steps: Vec<RolloutStep>,
}

/// A turn of a rollout.
#[derive(Debug, Clone)]
pub(crate) struct RolloutStep {
    pub(crate) turn: Arc<Turn>,
    pub(crate) mark: RolloutMark,
    /// Its number in its rollout, from 0.
    pub(crate) step: usize,
    /// The outcome of its rollout,
    pub(crate) outcome: f32,
    /// and the same with the reward of this step, if one was given.
    pub(crate) reward: f32,
}

/// The advantage of one turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepAdvantage {
    /// The same at each id.
    One(f32),
    /// `[R]`: one for each id of the reply.
    ById(Arc<[f32]>),
}

/// The advantage of each turn.
pub(crate) type StepAdvantages = BTreeMap<TurnId, StepAdvantage>;

/// Takes whole groups, the oldest first, until there are `limit` rollouts.
pub(crate) fn first_groups(groups: Vec<RolloutGroup>, limit: usize) -> Vec<RolloutGroup> {
    let mut n = 0;
    let fits = |group: &RolloutGroup| {
        let is_in = n == 0 || n + group.n_rollouts() <= limit;
        n += group.n_rollouts();
        is_in
    };
    groups.into_iter().take_while(fits).collect()
}

/// Returns the built-in advantages: (r - mean)/(std + 1e-6) among what each turn is compared with.
pub(crate) fn step_advantages(
    groups: &[RolloutGroup],
    form: Option<AdvantageForm>,
) -> StepAdvantages {
    let given = groups.iter().flat_map(|group| group.advantages(form));
    given
        .map(|(id, it)| (id, StepAdvantage::One(single(it))))
        .collect()
}

/// Returns the batch of these groups. Turns of groups in which no turn has an advantage are excluded.
pub(crate) fn rollout_batch(groups: &[RolloutGroup], advantages: &StepAdvantages) -> Batch {
    let differs = |group: &RolloutGroup| {
        let given = group
            .steps
            .iter()
            .filter_map(|it| advantages.get(&it.turn.id));
        given.into_iter().any(|it| !it.is_zero())
    };
    let (trained, rest): (Vec<_>, Vec<_>) = groups.iter().partition(|group| differs(group));
    let ids_of: BTreeMap<&RolloutId, usize> = ids_of_rollouts(&trained);
    let n_rollouts = ids_of.len().max(1) as f32;
    let mut batch = Batch {
        groups: trained
            .iter()
            .map(|group| group.outcomes(true))
            .chain(rest.iter().map(|group| group.outcomes(false)))
            .collect(),
        ..Batch::default()
    };
    for step in trained.iter().flat_map(|group| &group.steps) {
        let given = advantages.get(&step.turn.id).filter(|it| !it.is_zero());
        let Some(given) = given else {
            batch.counted.push(Arc::clone(&step.turn));
            continue;
        };
        let n_ids = ids_of.get(&step.mark.id).copied().unwrap_or(1).max(1);
        let mut sample = Sample::own(Arc::clone(&step.turn), HintedPrompts::default());
        sample.push = Some(given.push(1.0 / (n_rollouts * n_ids as f32)));
        batch.samples.push(sample);
    }
    let rest = rest.into_iter().flat_map(|group| &group.steps);
    let spent = rest.map(|step| (step.turn.id, ExcludeReason::NoDifference));
    batch.spent = spent.collect();
    batch
}

fn has_step_rewards(rollout: &Rollout) -> bool {
    matches!(&rollout.state, RolloutState::Scored { steps, .. } if !steps.is_empty())
}

/// Returns the number of ids of each rollout's turns.
fn ids_of_rollouts<'a>(groups: &[&'a RolloutGroup]) -> BTreeMap<&'a RolloutId, usize> {
    let mut n_ids = BTreeMap::new();
    for step in groups.iter().flat_map(|group| &group.steps) {
        let n = step.turn.tokens.as_ref().map_or(0, |it| it.ids.len());
        *n_ids.entry(&step.mark.id).or_default() += n;
    }
    n_ids
}

// === impl RolloutGroup ===

impl RolloutGroup {
    /// Returns the number of rollouts with an outcome.
    pub(crate) fn n_rollouts(&self) -> usize {
        self.rollouts.len()
    }

    /// Returns when its last turn ended, in Unix milliseconds.
    pub(crate) fn ended_ms(&self) -> Option<u64> {
        self.steps.iter().map(|it| it.turn.meta.ended_ms).max()
    }

    /// Removes and returns the turns that were sampled more than `max_lag` optimiser steps before `version`. Their outcomes
    /// still count.
    pub(crate) fn take_lagging(&mut self, version: u64, max_lag: u64) -> Vec<TurnId> {
        let is_lagging = |step: &RolloutStep| {
            let sampled = step.turn.tokens.as_ref().and_then(|tokens| {
                let of_base = tokens.adapter.is_none().then_some(0);
                tokens.version.or(of_base)
            });
            // A version that nobody tells is not compared.
            sampled.is_some_and(|it| version.saturating_sub(it) > max_lag)
        };
        let (lagging, rest) = self.steps.drain(..).partition(|it| is_lagging(it));
        self.steps = rest;
        let lagging: Vec<RolloutStep> = lagging;
        lagging.into_iter().map(|it| it.turn.id).collect()
    }

    fn outcomes(&self, is_trained: bool) -> GroupOutcomes {
        GroupOutcomes {
            outcomes: self.rollouts.iter().filter_map(Rollout::outcome).collect(),
            is_trained,
        }
    }

    fn advantages(&self, form: Option<AdvantageForm>) -> Vec<(TurnId, f64)> {
        let has_step_rewards = self.rollouts.iter().any(has_step_rewards);
        let by_step = form.map_or(has_step_rewards, |it| it == AdvantageForm::Step);
        let turns = self.steps.iter().map(|it| it.turn.id);
        let most = f64::from(MAX_ADVANTAGE);
        let bounded = |it: f64| it.clamp(-most, most);
        if by_step {
            let rewards = self.steps.iter().map(|it| (it.step, f64::from(it.reward)));
            let given = by_bucket_double(&rewards.collect::<Vec<_>>());
            return turns.zip(given.into_iter().map(bounded)).collect();
        }
        let scored = self.rollouts.iter();
        let scored = scored.filter_map(|it| Some((&it.id, f64::from(it.outcome()?))));
        let (ids, outcomes): (Vec<&RolloutId>, Vec<f64>) = scored.unzip();
        let of_group = outcomes.into_iter().map(|it| ((), it));
        let given = by_bucket_double(&of_group.collect::<Vec<_>>());
        let of: BTreeMap<&RolloutId, f64> = ids.into_iter().zip(given).collect();
        let each = self.steps.iter().map(|it| of.get(&it.mark.id).copied());
        turns
            .zip(each.map(|it| bounded(it.unwrap_or(0.0))))
            .collect()
    }
}

// === impl StepAdvantage ===

impl StepAdvantage {
    /// Returns whether it pushes nothing. A function of the owner's may leave a rounding error of equal rewards.
    fn is_zero(&self) -> bool {
        let is_zero = |it: &f32| it.abs() < f32::EPSILON;
        match self {
            Self::One(one) => is_zero(one),
            Self::ById(each) => each.iter().all(is_zero),
        }
    }

    fn push(&self, share: f32) -> Push {
        let (advantage, by_id) = match self {
            Self::One(one) => (*one, None),
            Self::ById(each) => {
                let n = each.len().max(1) as f32;
                (each.iter().sum::<f32>() / n, Some(Arc::clone(each)))
            }
        };
        Push {
            advantage,
            teacher_delta: None,
            rollout: Some(RolloutPush { share, by_id }),
        }
    }
}
