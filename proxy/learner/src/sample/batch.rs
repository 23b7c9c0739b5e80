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
    /// Turns that the step takes because the advantages of others depend on them.
    pub(crate) counted: Vec<Arc<Turn>>,
    /// Replies that the weights are held at.
    pub(crate) anchors: Vec<Arc<AnchorReply>>,
    /// Turns that are in no batch, and why: their advantage is 0.
    pub(crate) spent: Vec<(TurnId, ExcludeReason)>,
}

// === impl Batch ===

impl Batch {
    /// The same, held at these replies.
    pub(crate) fn held_at(self, anchors: Vec<Arc<AnchorReply>>) -> Self {
        Self { anchors, ..self }
    }

    /// The same, held at nothing.
    pub(crate) fn without_anchors(self) -> Self {
        self.held_at(Vec::new())
    }

    /// The turns about which an external teacher is to be asked.
    pub(crate) fn to_be_scored(&self) -> impl Iterator<Item = &Arc<Turn>> {
        let scored = self.pushed().filter(|it| it.may_be_scored());
        scored.map(|it| &it.turn)
    }

    /// The same, with what an external teacher adds to the advantages of each of these turns' ids.
    pub(crate) fn with_deltas(mut self, deltas: &BTreeMap<TurnId, Arc<[f32]>>) -> Self {
        for sample in &mut self.samples {
            let delta = deltas.get(&sample.id()).cloned();
            if let Some(push) = &mut sample.push {
                push.teacher_delta = delta;
            }
        }
        self
    }

    /// Whether there is nothing to train on.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Samples that the teacher answered, and samples whose own ids are pushed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.answered().count(), self.pushed().count())
    }

    /// Samples that earlier steps had as well.
    pub(crate) fn n_again(&self) -> usize {
        self.samples.iter().filter(|it| !it.is_fresh).count()
    }

    /// Every turn that the step takes, each once, by its id.
    pub(crate) fn turns(&self) -> BTreeMap<TurnId, &Turn> {
        let own = self.samples.iter().map(|it| &it.turn);
        let all = own.chain(&self.counted);
        all.map(|turn| (turn.id, &**turn)).collect()
    }

    /// The mean score of its turns, and the share of good ones.
    pub(crate) fn rewards(&self) -> (f32, f32) {
        let scores: Vec<Score> = self.turns().into_values().filter_map(score).collect();
        let n = scores.len().max(1) as f32;
        let good = scores.iter().filter(|score| **score == Score::Good).count();
        (
            scores.iter().map(|score| score.value()).sum::<f32>() / n,
            good as f32 / n,
        )
    }

    /// The scores of its turns.
    pub(crate) fn scores(&self) -> BTreeMap<TurnId, Score> {
        let turns = self.turns().into_iter();
        turns
            .filter_map(|(id, turn)| Some((id, score(turn)?)))
            .collect()
    }

    /// The same without these turns.
    pub(crate) fn without(&self, turns: &[TurnId]) -> Self {
        self.filtered(|id| !turns.contains(&id))
    }

    /// Whether it is of one sample, which cannot be halved.
    pub(crate) fn is_one_sample(&self) -> bool {
        self.samples.len() <= 1
    }

    /// Two halves; the first is empty where there is one sample alone.
    pub(crate) fn halves(&self) -> [Self; 2] {
        let ids: Vec<TurnId> = self.samples.iter().map(Sample::id).collect();
        let (first, second) = ids.split_at(ids.len() / 2);
        let of = |half: &[TurnId]| self.filtered(|id| half.contains(&id));
        [of(first), of(second)]
    }

    /// Those that the teacher answered.
    pub(crate) fn answered(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|it| it.target.is_some())
    }

    /// Those whose own ids are pushed.
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
        }
    }
}
