//! The samples of one step.
//!
//! Groups of rollouts, the advantage of each turn, and the batch that they make.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{RolloutId, Score, TurnId};
use metaclaw_turns::{Rollout, RolloutMark, RolloutState, Turn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    exclude_reason::ExcludeReason,
    types::{AnchorReply, HintedPrompts, MAX_ADVANTAGE, Push, RolloutPush, Sample, score},
};
use crate::formulas::{by_bucket, single};

#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) samples: Vec<Sample>,
    /// Turns that the step uses because the advantages of others depend on them.
    pub(crate) counted: Vec<Arc<Turn>>,
    pub(crate) anchors: Vec<Arc<AnchorReply>>,
    /// Turns that are in no batch, and why: their advantage is 0.
    pub(crate) spent: Vec<(TurnId, ExcludeReason)>,
    /// The groups of a step of rollouts, those without difference among them; none of a step of chats.
    pub(crate) groups: Vec<GroupOutcomes>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GroupOutcomes {
    pub(crate) outcomes: Vec<f32>,
    pub(crate) is_trained: bool,
}

// === impl Batch ===

impl Batch {
    pub(crate) fn held_at(self, anchors: Vec<Arc<AnchorReply>>) -> Self {
        Self { anchors, ..self }
    }

    pub(crate) fn without_anchors(self) -> Self {
        self.held_at(Vec::new())
    }

    pub(crate) fn to_be_scored(&self) -> impl Iterator<Item = &Arc<Turn>> {
        let scored = self.pushed().filter(|sample| sample.may_be_scored());
        scored.map(|scored| &scored.turn)
    }

    pub(crate) fn with_deltas(mut self, deltas: &BTreeMap<TurnId, Arc<[f32]>>) -> Self {
        for sample in &mut self.samples {
            let delta = deltas.get(&sample.id()).cloned();
            if let Some(push) = &mut sample.push {
                push.teacher_delta = delta;
            }
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns the number of samples that the teacher answered, and of samples whose own ids have advantages.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.answered().count(), self.pushed().count())
    }

    pub(crate) fn n_again(&self) -> usize {
        self.samples.iter().filter(|s| !s.is_fresh).count()
    }

    pub(crate) fn turns(&self) -> BTreeMap<TurnId, &Turn> {
        let own = self.samples.iter().map(|sample| &sample.turn);
        let all = own.chain(&self.counted);
        all.map(|turn| (turn.id, &**turn)).collect()
    }

    /// Returns whether it is of rollouts, which never come into a step with other turns.
    pub(crate) fn is_of_rollouts(&self) -> bool {
        !self.groups.is_empty()
    }

    pub(crate) fn outcomes(&self) -> impl Iterator<Item = f32> {
        let groups = self.groups.iter();
        groups.flat_map(|group| group.outcomes.iter().copied())
    }

    /// Returns the mean score of its turns and the share of good ones; of rollouts, that of their outcomes.
    pub(crate) fn rewards(&self) -> (f32, f32) {
        if self.is_of_rollouts() {
            let n = self.outcomes().count().max(1) as f32;
            let n_good = self.outcomes().filter(|outcome| *outcome > 0.0).count();
            return (self.outcomes().sum::<f32>() / n, n_good as f32 / n);
        }
        let scores: Vec<Score> = self.turns().into_values().filter_map(score).collect();
        let n = scores.len().max(1) as f32;
        let good = scores.iter().filter(|score| **score == Score::Good).count();
        (
            scores.iter().map(|score| score.value()).sum::<f32>() / n,
            good as f32 / n,
        )
    }

    pub(crate) fn scores(&self) -> BTreeMap<TurnId, Score> {
        let turns = self.turns().into_iter();
        turns
            .filter_map(|(id, turn)| Some((id, score(turn)?)))
            .collect()
    }

    pub(crate) fn without(&self, turns: &[TurnId]) -> Self {
        self.filtered(|id| !turns.contains(&id))
    }

    pub(crate) fn is_one_sample(&self) -> bool {
        self.samples.len() <= 1
    }

    /// Splits it into two halves; the first is empty if there is a single sample.
    pub(crate) fn halves(&self) -> [Self; 2] {
        let ids: Vec<TurnId> = self.samples.iter().map(Sample::id).collect();
        let (first, second) = ids.split_at(ids.len() / 2);
        let of = |half: &[TurnId]| self.filtered(|id| half.contains(&id));
        [of(first), of(second)]
    }

    pub(crate) fn answered(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| sample.target.is_some())
    }

    pub(crate) fn pushed(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.samples.iter().filter(|sample| sample.push.is_some())
    }

    fn filtered(&self, keeps: impl Fn(TurnId) -> bool) -> Self {
        let samples = self.samples.iter().filter(|sample| keeps(sample.id()));
        let counted = self.counted.iter().filter(|turn| keeps(turn.id));
        Self {
            samples: samples.cloned().collect(),
            counted: counted.cloned().collect(),
            anchors: self.anchors.clone(),
            spent: Vec::new(),
            groups: self.groups.clone(),
        }
    }
}

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

#[derive(Debug, Clone)]
pub(crate) struct RolloutGroup {
    /// The rollouts that have an outcome, in the order in which they were opened.
    pub(crate) rollouts: Vec<Rollout>,
    /// The turns of these that are to be trained on, those of one rollout in a row and in their order.
    pub(crate) steps: Vec<RolloutStep>,
}

#[derive(Debug, Clone)]
pub(crate) struct RolloutStep {
    pub(crate) turn: Arc<Turn>,
    pub(crate) mark: RolloutMark,
    /// Its number in its rollout, from 0.
    pub(crate) step: usize,
    pub(crate) outcome: f32,
    /// The outcome, with the reward of this step if one was given.
    pub(crate) reward: f32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepAdvantage {
    /// The same at each id.
    One(f32),
    /// `[R]`: one for each id of the reply.
    ById(Arc<[f32]>),
}

pub(crate) type StepAdvantages = BTreeMap<TurnId, StepAdvantage>;

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
            .filter_map(|step| advantages.get(&step.turn.id));
        given.into_iter().any(|advantage| !advantage.is_zero())
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
        let given = advantages.get(&step.turn.id).filter(|a| !a.is_zero());
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

fn ids_of_rollouts<'a>(groups: &[&'a RolloutGroup]) -> BTreeMap<&'a RolloutId, usize> {
    let mut n_ids = BTreeMap::new();
    for step in groups.iter().flat_map(|group| &group.steps) {
        let n = step.turn.tokens.as_ref().map_or(0, |t| t.ids.len());
        *n_ids.entry(&step.mark.id).or_default() += n;
    }
    n_ids
}

// === impl RolloutGroup ===

impl RolloutGroup {
    pub(crate) fn n_rollouts(&self) -> usize {
        self.rollouts.len()
    }

    pub(crate) fn ended_ms(&self) -> Option<u64> {
        self.steps.iter().map(|step| step.turn.meta.ended_ms).max()
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
            sampled.is_some_and(|sampled| version.saturating_sub(sampled) > max_lag)
        };
        let (lagging, rest) = self.steps.drain(..).partition(|step| is_lagging(step));
        self.steps = rest;
        let lagging: Vec<RolloutStep> = lagging;
        lagging.into_iter().map(|step| step.turn.id).collect()
    }

    fn outcomes(&self, is_trained: bool) -> GroupOutcomes {
        GroupOutcomes {
            outcomes: self.rollouts.iter().filter_map(Rollout::outcome).collect(),
            is_trained,
        }
    }

    fn advantages(&self, form: Option<AdvantageForm>) -> Vec<(TurnId, f64)> {
        let has_step_rewards = self.rollouts.iter().any(has_step_rewards);
        let by_step = form.map_or(has_step_rewards, |form| form == AdvantageForm::Step);
        let turns = self.steps.iter().map(|step| step.turn.id);
        let most = f64::from(MAX_ADVANTAGE);
        let bounded = |value: f64| value.clamp(-most, most);
        if by_step {
            let rewards = self.steps.iter().map(|s| (s.step, f64::from(s.reward)));
            let given = by_bucket(&rewards.collect::<Vec<_>>());
            return turns.zip(given.into_iter().map(bounded)).collect();
        }
        let scored = self.rollouts.iter();
        let scored = scored.filter_map(|scored| Some((&scored.id, f64::from(scored.outcome()?))));
        let (ids, outcomes): (Vec<&RolloutId>, Vec<f64>) = scored.unzip();
        let of_group = outcomes.into_iter().map(|outcome| ((), outcome));
        let given = by_bucket(&of_group.collect::<Vec<_>>());
        let of: BTreeMap<&RolloutId, f64> = ids.into_iter().zip(given).collect();
        let each = self.steps.iter().map(|step| of.get(&step.mark.id).copied());
        turns
            .zip(each.map(|value| bounded(value.unwrap_or(0.0))))
            .collect()
    }
}

// === impl StepAdvantage ===

impl StepAdvantage {
    /// Returns whether it pushes nothing. A function of the owner's may leave a rounding error of equal rewards.
    fn is_zero(&self) -> bool {
        let is_zero = |value: &f32| value.abs() < f32::EPSILON;
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
