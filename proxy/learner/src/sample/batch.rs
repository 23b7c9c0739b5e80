//! The samples of one step.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::Turn;

use super::{
    exclude_reason::ExcludeReason,
    turns::score,
    types::{AnchorReply, Sample},
};

/// The samples of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) samples: Vec<Sample>,
    /// Turns that the step uses because the advantages of others depend on them.
    pub(crate) counted: Vec<Arc<Turn>>,
    /// Replies that the weights are kept near.
    pub(crate) anchors: Vec<Arc<AnchorReply>>,
    /// Turns that are in no batch, and why: their advantage is 0.
    pub(crate) spent: Vec<(TurnId, ExcludeReason)>,
    /// The groups of a step of rollouts, those without difference among them; none of a step of chats.
    pub(crate) groups: Vec<GroupOutcomes>,
}

/// The outcomes of a group of rollouts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GroupOutcomes {
    /// The outcomes of those that have one.
    pub(crate) outcomes: Vec<f32>,
    /// Whether the group is trained on.
    pub(crate) is_trained: bool,
}

// === impl Batch ===

impl Batch {
    /// Returns the batch with these anchor replies.
    pub(crate) fn held_at(self, anchors: Vec<Arc<AnchorReply>>) -> Self {
        Self { anchors, ..self }
    }

    /// Returns the batch without anchor replies.
    pub(crate) fn without_anchors(self) -> Self {
        self.held_at(Vec::new())
    }

    /// Returns the turns that an external teacher is asked about.
    pub(crate) fn to_be_scored(&self) -> impl Iterator<Item = &Arc<Turn>> {
        let scored = self.pushed().filter(|it| it.may_be_scored());
        scored.map(|it| &it.turn)
    }

    /// Returns the batch with the external teacher's advantages for the ids of these turns.
    pub(crate) fn with_deltas(mut self, deltas: &BTreeMap<TurnId, Arc<[f32]>>) -> Self {
        for sample in &mut self.samples {
            let delta = deltas.get(&sample.id()).cloned();
            if let Some(push) = &mut sample.push {
                push.teacher_delta = delta;
            }
        }
        self
    }

    /// Returns whether there is nothing to train on.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns the number of samples that the teacher answered, and of samples whose own ids have advantages.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.answered().count(), self.pushed().count())
    }

    /// Returns the number of samples that earlier steps used as well.
    pub(crate) fn n_again(&self) -> usize {
        self.samples.iter().filter(|it| !it.is_fresh).count()
    }

    /// Returns the id of every turn that the step uses, each once.
    pub(crate) fn turns(&self) -> BTreeMap<TurnId, &Turn> {
        let own = self.samples.iter().map(|it| &it.turn);
        let all = own.chain(&self.counted);
        all.map(|turn| (turn.id, &**turn)).collect()
    }

    /// Returns whether it is of rollouts, which never come into a step with other turns.
    pub(crate) fn is_of_rollouts(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Returns the outcome of every rollout of its groups.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = f32> {
        let groups = self.groups.iter();
        groups.flat_map(|group| group.outcomes.iter().copied())
    }

    /// Returns the mean score of its turns and the share of good ones; of rollouts, that of their outcomes.
    pub(crate) fn rewards(&self) -> (f32, f32) {
        if self.is_of_rollouts() {
            let n = self.outcomes().count().max(1) as f32;
            let n_good = self.outcomes().filter(|it| *it > 0.0).count();
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

    /// Returns the scores of its turns.
    pub(crate) fn scores(&self) -> BTreeMap<TurnId, Score> {
        let turns = self.turns().into_iter();
        turns
            .filter_map(|(id, turn)| Some((id, score(turn)?)))
            .collect()
    }

    /// Returns the batch without these turns.
    pub(crate) fn without(&self, turns: &[TurnId]) -> Self {
        self.filtered(|id| !turns.contains(&id))
    }

    /// Returns whether it has a single sample, and so cannot be halved.
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

    /// Returns the samples that the teacher answered.
    pub(crate) fn answered(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|it| it.target.is_some())
    }

    /// Returns the samples whose own ids have advantages.
    pub(crate) fn pushed(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.samples.iter().filter(|it| it.push.is_some())
    }

    fn filtered(&self, keeps: impl Fn(TurnId) -> bool) -> Self {
        let samples = self.samples.iter().filter(|it| keeps(it.id()));
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
