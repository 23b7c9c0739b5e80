//! The samples of one step, and what they ask the trainer to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{Datum, DatumError, LossConfig, LossFn};
use metaclaw_turns::Turn;

use super::{
    baselines::Baselines,
    datum, reason,
    turns::sampled_fairly,
    waiting::{Redo, Samples},
};
use crate::{
    config::{RlConfig, RlConfigError},
    lineage::Ancestry,
};

mod stats;

/// Samples of each method in a step that was asked for: more is a rate of learning that nobody chose.
pub(crate) const MOST_AT_ONCE: usize = 64;

/// The samples of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    redo: Vec<Redo>,
    verdicts: Vec<(Arc<Turn>, f32)>,
    /// Turns that are in no batch, and why: their advantage is 0.
    pub(crate) spent: Vec<(TurnId, &'static str)>,
}

/// The sequences of one loss.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// Of `rl.method`.
    pub(crate) method: &'static str,
    pub(crate) loss: LossFn,
    pub(crate) loss_config: LossConfig,
    pub(crate) sequences: Vec<Sequence>,
}

/// What the trainer is given of one sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) datum: Datum,
    /// The turns that it is made of.
    pub(crate) turns: Vec<TurnId>,
}

/// Why a batch is nothing to train on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoGroups {
    /// A sample is no sequence.
    #[error("the token ids of {turns:?} are no sequence: {error}")]
    Sequence {
        turns: Vec<TurnId>,
        #[source]
        error: DatumError,
    },
    #[error(transparent)]
    Config(#[from] RlConfigError),
}

// === impl Batch ===

impl Batch {
    /// The first `limit` samples of each method; of redo, `again` beside them.
    pub(crate) fn new(
        samples: &Samples,
        again: Vec<Redo>,
        config: &RlConfig,
        baselines: Baselines,
        limit: usize,
    ) -> Self {
        let mut redo: Vec<Redo> = samples.redo.iter().take(limit).cloned().collect();
        redo.extend(again);
        let mut batch = Self {
            redo,
            ..Self::default()
        };
        for turn in &samples.verdicts {
            let given = baselines.advantage(turn);
            if given == 0.0 {
                batch.spent.push((turn.id, reason::NO_ADVANTAGE));
            } else if batch.verdicts.len() < limit {
                batch.verdicts.push((Arc::clone(turn), given));
            }
        }
        if config.method.binary_rl {
            batch.push_redo_too(baselines);
        }
        batch
    }

    /// Turns that are answered again have verdicts as well, which are pushed at their first step.
    fn push_redo_too(&mut self, baselines: Baselines) {
        let first = self.redo.iter().filter(|sample| sample.is_fresh);
        let fair = first.filter(|sample| sampled_fairly(&sample.turn));
        let pushed = fair.map(|it| (Arc::clone(&it.turn), baselines.advantage(&it.turn)));
        let pushed: Vec<_> = pushed.filter(|(_, given)| *given != 0.0).collect();
        self.verdicts.extend(pushed);
    }

    /// Whether there is nothing to train on.
    pub(crate) fn is_empty(&self) -> bool {
        self.redo.is_empty() && self.verdicts.is_empty()
    }

    /// Samples of redo and of binary_rl.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.redo.len(), self.verdicts.len())
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

    /// A group for each method; the gradients of both add up. Each sample has the weight w/(B·|M|).
    ///
    /// # Errors
    /// [`NoGroups`] for the first sample that is no sequence, and settings that do not go together.
    pub(crate) fn groups(&self, config: &RlConfig) -> Result<Vec<Group>, NoGroups> {
        let share = config.w_redo / self.redo.len().max(1) as f32;
        let redo = self.redo.iter();
        let redo = redo.map(|it| Sequence::new(vec![it.id()], it.target.datum(share)));
        let share = config.w_rl / self.verdicts.len().max(1) as f32;
        let pushed = self
            .verdicts
            .iter()
            .filter_map(|(turn, given)| Some((turn.id, turn.tokens.as_ref()?, given)));
        let pushed = pushed.map(|(id, tokens, given)| {
            Sequence::new(vec![id], datum::verdict(tokens, share * given))
        });
        let pushes = config.policy_loss()?;
        let groups = [
            Group {
                method: "redo",
                loss: LossFn::CrossEntropy,
                loss_config: LossConfig::new(),
                sequences: redo.collect::<Result<_, _>>()?,
            },
            Group {
                method: "binary_rl",
                loss: pushes.loss,
                loss_config: pushes.config,
                sequences: pushed.collect::<Result<_, _>>()?,
            },
        ];
        Ok(groups
            .into_iter()
            .filter(|group| !group.sequences.is_empty())
            .collect())
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
        let alone = self.verdicts.iter().map(|(turn, _)| turn.id);
        samples.extend(alone.filter(|id| !redo.contains(id)));
        samples
    }

    fn filtered(&self, keeps: impl Fn(TurnId) -> bool) -> Self {
        let redo = self.redo.iter().filter(|sample| keeps(sample.id()));
        let verdicts = self.verdicts.iter();
        Self {
            redo: redo.cloned().collect(),
            verdicts: verdicts
                .filter(|(turn, _)| keeps(turn.id))
                .cloned()
                .collect(),
            spent: Vec::new(),
        }
    }

    fn by_id(&self) -> BTreeMap<TurnId, &Turn> {
        let redo = self.redo.iter().map(|sample| &sample.turn);
        let pushed = self.verdicts.iter().map(|(turn, _)| turn);
        redo.chain(pushed).map(|turn| (turn.id, &**turn)).collect()
    }
}

// === impl Sequence ===

impl Sequence {
    fn new(turns: Vec<TurnId>, datum: Result<Datum, DatumError>) -> Result<Self, NoGroups> {
        match datum {
            Ok(datum) => Ok(Self { datum, turns }),
            Err(error) => Err(NoGroups::Sequence { turns, error }),
        }
    }

    /// How many ids the model reads.
    pub(crate) fn n_tokens(&self) -> usize {
        self.datum.parts().model_input_tokens.len()
    }
}

#[cfg(test)]
mod tests;
