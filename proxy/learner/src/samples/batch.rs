//! The samples of one step, and what they ask the trainer to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{LossConfig, LossFn};
use metaclaw_turns::Turn;

use super::{
    anchor::Reply,
    exclude_reason::ExcludeReason,
    group::{Group, NoGroups, Sequence, anchored, groups},
    pushed::{Choosing, Pushed, choose},
    waiting::{Redo, Samples},
};
use crate::{config::RlConfig, lineage::Ancestry};

mod stats;

/// Samples of each method in a step that was asked for: more is a rate of learning that nobody chose.
pub(crate) const MOST_AT_ONCE: usize = 64;
/// As in `rl.method`.
const REDO: &str = "redo";

/// The samples of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    redo: Vec<Redo>,
    pushed: Vec<Pushed>,
    /// Turns that the step takes because they are part of what others count for.
    counted: Vec<Arc<Turn>>,
    /// Replies that the weights are held at.
    anchors: Vec<Arc<Reply>>,
    /// Turns that are in no batch, and why: their advantage is 0.
    pub(crate) spent: Vec<(TurnId, ExcludeReason)>,
}

// === impl Batch ===

impl Batch {
    /// The first samples of each method; of redo, `again` beside them.
    pub(crate) fn new(samples: &Samples, again: Vec<Redo>, choosing: Choosing<'_>) -> Self {
        let redo = samples.redo.iter().take(choosing.limit);
        let mut redo: Vec<Redo> = redo.cloned().collect();
        redo.extend(again);
        let choice = choose(samples, &redo, choosing);
        Self {
            redo,
            pushed: choice.pushed,
            counted: choice.counted,
            anchors: Vec::new(),
            spent: choice.spent,
        }
    }

    /// The same, held at these replies.
    pub(crate) fn held_at(self, anchors: Vec<Arc<Reply>>) -> Self {
        Self { anchors, ..self }
    }

    /// The same, held at nothing.
    pub(crate) fn without_anchors(self) -> Self {
        self.held_at(Vec::new())
    }

    /// The turns about which an external teacher is to be asked.
    pub(crate) fn to_be_scored(&self) -> impl Iterator<Item = &Arc<Turn>> {
        let scored = self.pushed.iter().filter(|it| it.may_be_scored());
        scored.map(|it| &it.turn)
    }

    /// The same, with what an external teacher adds to the advantages of each of these turns' ids.
    pub(crate) fn pulled(mut self, pulls: &BTreeMap<TurnId, Arc<[f32]>>) -> Self {
        for it in &mut self.pushed {
            it.pulls = pulls.get(&it.turn.id).cloned();
        }
        self
    }

    /// Whether there is nothing to train on.
    pub(crate) fn is_empty(&self) -> bool {
        self.redo.is_empty() && self.pushed.is_empty()
    }

    /// Samples of redo, and turns whose own ids are pushed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.redo.len(), self.pushed.len())
    }

    /// Samples of redo that earlier steps had as well.
    pub(crate) fn n_again(&self) -> usize {
        self.redo.iter().filter(|sample| !sample.is_fresh).count()
    }

    /// Every turn that the step takes, each once, in order, with which use of it this is in the weights, from 1.
    pub(crate) fn uses(&self, ancestry: &Ancestry) -> Vec<(TurnId, usize)> {
        let turns = self.by_id().into_iter();
        turns
            .map(|(id, turn)| (id, ancestry.n_uses(turn) + 1))
            .collect()
    }

    /// Every turn that the step takes, each once, in order.
    pub(crate) fn turns(&self) -> Vec<TurnId> {
        self.by_id().into_keys().collect()
    }

    /// The mean score of its turns, and the share of good ones.
    pub(crate) fn rewards(&self) -> (f32, f32) {
        let scores = self
            .by_id()
            .into_values()
            .filter_map(|turn| turn.verdict.as_ref().map(|v| v.score));
        let scores: Vec<Score> = scores.collect();
        let n = scores.len().max(1) as f32;
        let good = scores.iter().filter(|score| **score == Score::Good).count();
        (
            scores.iter().map(|score| score.value()).sum::<f32>() / n,
            good as f32 / n,
        )
    }

    /// A group for each method; the gradients of all add up. Of what is pushed each sample counts alike, w/(B·|M|) an id, but for
    /// metaclaw's; of what is taught each id does, w/sum |M|, as the likelihood of the teacher's replies has it: where samples count alike
    /// the end of a short one weighs as much as many ids of a long one, and what is learned is brief.
    ///
    /// # Errors
    /// [`NoGroups`] for the first sample that is no sequence, and settings that do not go together.
    pub(crate) fn groups(&self, config: &RlConfig) -> Result<Vec<Group>, NoGroups> {
        let n_taught: usize = self.redo.iter().map(|it| it.target.n_ids()).sum();
        let each = config.w_redo / n_taught.max(1) as f32;
        let redo = self.redo.iter();
        let redo = redo.flat_map(|it| {
            let datums = it.target.datums(each);
            datums.map(|datum| Sequence::new(vec![it.id()], datum))
        });
        let redo = Group {
            method: REDO,
            loss: LossFn::CrossEntropy,
            loss_config: LossConfig::new(),
            sequences: redo.collect::<Result<_, _>>()?,
        };
        let groups = [redo].into_iter().chain(groups(&self.pushed, config)?);
        let groups = groups.chain([anchored(&self.anchors, config)?]);
        let is_there = |group: &Group| !group.sequences.is_empty();
        Ok(groups.filter(is_there).collect())
    }

    /// The same without these turns.
    pub(crate) fn without(&self, turns: &[TurnId]) -> Self {
        self.filtered(|id| !turns.contains(&id))
    }

    /// Whether it is of one sample, which cannot be halved.
    pub(crate) fn is_one_sample(&self) -> bool {
        self.samples().len() <= 1
    }

    /// Two halves; the first is empty where there is one sample alone.
    pub(crate) fn halves(&self) -> [Self; 2] {
        let samples = self.samples();
        let (first, second) = samples.split_at(samples.len() / 2);
        let of = |half: &[TurnId]| self.filtered(|id| half.contains(&id));
        [of(first), of(second)]
    }

    /// The turn of each sample. What is answered again stays with the verdict of its turn.
    fn samples(&self) -> Vec<TurnId> {
        let mut samples: Vec<TurnId> = self.redo.iter().map(Redo::id).collect();
        let redo: BTreeSet<TurnId> = samples.iter().copied().collect();
        let alone = self.pushed.iter().map(|it| it.turn.id);
        samples.extend(alone.filter(|id| !redo.contains(id)));
        samples
    }

    fn filtered(&self, keeps: impl Fn(TurnId) -> bool) -> Self {
        let redo = self.redo.iter().filter(|sample| keeps(sample.id()));
        let pushed = self.pushed.iter().filter(|it| keeps(it.turn.id));
        let counted = self.counted.iter().filter(|turn| keeps(turn.id));
        Self {
            redo: redo.cloned().collect(),
            pushed: pushed.cloned().collect(),
            counted: counted.cloned().collect(),
            anchors: self.anchors.clone(),
            spent: Vec::new(),
        }
    }

    fn by_id(&self) -> BTreeMap<TurnId, &Turn> {
        let redo = self.redo.iter().map(|sample| &sample.turn);
        let pushed = self.pushed.iter().map(|it| &it.turn);
        let all = redo.chain(pushed).chain(&self.counted);
        all.map(|turn| (turn.id, &**turn)).collect()
    }
}

#[cfg(test)]
mod tests;
