//! The samples of one step, and what they ask the trainer to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{Datum, DatumError, LossFn};
use metaclaw_turns::Turn;

use super::{
    baselines::Baselines,
    datum, reason,
    turns::sampled_fairly,
    waiting::{Correction, Samples},
};
use crate::config::RlConfig;

mod stats;

/// Samples of each method in a step that was asked for: more is a rate of learning that nobody chose.
pub(crate) const MOST_AT_ONCE: usize = 64;

/// The samples of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    corrections: Vec<Correction>,
    verdicts: Vec<(Arc<Turn>, f32)>,
    /// Turns that are in no batch, and why: their advantage is 0.
    pub(crate) spent: Vec<(TurnId, &'static str)>,
}

/// The sequences of one loss.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) loss: LossFn,
    pub(crate) sequences: Vec<Sequence>,
}

/// What the trainer is given of one sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) datum: Datum,
    /// The turns that it is made of.
    pub(crate) turns: Vec<TurnId>,
}

/// A sample that is no sequence.
#[derive(Debug, thiserror::Error)]
#[error("the token ids of {turns:?} are no sequence: {error}")]
pub(crate) struct NoSequence {
    pub(crate) turns: Vec<TurnId>,
    #[source]
    error: DatumError,
}

// === impl Batch ===

impl Batch {
    /// The first `limit` samples of each method.
    pub(crate) fn new(
        samples: &Samples,
        config: &RlConfig,
        baselines: Baselines,
        limit: usize,
    ) -> Self {
        let corrections: Vec<Correction> =
            samples.corrections.iter().take(limit).cloned().collect();
        let mut batch = Self {
            corrections,
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
            batch.push_corrections_too(baselines);
        }
        batch
    }

    /// The turns of corrections have verdicts as well, and are taken once: this is their only step.
    fn push_corrections_too(&mut self, baselines: Baselines) {
        let turns = self
            .corrections
            .iter()
            .flat_map(|pair| [&pair.failed, &pair.accepted]);
        let fair = turns.filter(|turn| sampled_fairly(turn));
        let pushed = fair.map(|turn| (Arc::clone(turn), baselines.advantage(turn)));
        let pushed: Vec<_> = pushed.filter(|(_, given)| *given != 0.0).collect();
        self.verdicts.extend(pushed);
    }

    /// Whether there is nothing to train on.
    pub(crate) fn is_empty(&self) -> bool {
        self.corrections.is_empty() && self.verdicts.is_empty()
    }

    /// Samples of redo and of binary_rl.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.corrections.len(), self.verdicts.len())
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

    /// The losses that it needs.
    pub(crate) fn losses(&self) -> Vec<LossFn> {
        let redo = (!self.corrections.is_empty()).then_some(LossFn::CrossEntropy);
        let rl = (!self.verdicts.is_empty()).then_some(LossFn::ImportanceSampling);
        redo.into_iter().chain(rl).collect()
    }

    /// A group for each method; the gradients of both add up. Each sample has the weight w/(B·|M|).
    ///
    /// # Errors
    /// [`NoSequence`] for the first sample that is none.
    pub(crate) fn groups(&self, config: &RlConfig) -> Result<Vec<Group>, NoSequence> {
        let share = config.w_redo / self.corrections.len().max(1) as f32;
        let redo = self.corrections.iter();
        let redo = redo.map(|pair| Sequence::new(pair.turns(), pair.datum(share)));
        let share = config.w_rl / self.verdicts.len().max(1) as f32;
        let pushed = self
            .verdicts
            .iter()
            .filter_map(|(turn, given)| Some((turn.id, turn.tokens.as_ref()?, given)));
        let pushed = pushed.map(|(id, tokens, given)| {
            Sequence::new(vec![id], datum::verdict(tokens, share * given))
        });
        let groups = [
            Group {
                loss: LossFn::CrossEntropy,
                sequences: redo.collect::<Result<_, _>>()?,
            },
            Group {
                loss: LossFn::ImportanceSampling,
                sequences: pushed.collect::<Result<_, _>>()?,
            },
        ];
        Ok(groups
            .into_iter()
            .filter(|group| !group.sequences.is_empty())
            .collect())
    }

    /// The same without these turns, and without the corrections that have one of them.
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
        let of = |half: &[Vec<TurnId>]| {
            let turns: BTreeSet<TurnId> = half.iter().flatten().copied().collect();
            self.filtered(|id| turns.contains(&id))
        };
        [of(first), of(second)]
    }

    /// The turns of each sample. A correction stays with the verdicts of its turns.
    fn samples(&self) -> Vec<Vec<TurnId>> {
        let mut samples: Vec<Vec<TurnId>> =
            self.corrections.iter().map(Correction::turns).collect();
        let corrected: BTreeSet<TurnId> = samples.iter().flatten().copied().collect();
        let alone = self.verdicts.iter().map(|(turn, _)| turn.id);
        samples.extend(
            alone
                .filter(|id| !corrected.contains(id))
                .map(|id| vec![id]),
        );
        samples
    }

    fn filtered(&self, keeps: impl Fn(TurnId) -> bool) -> Self {
        let corrections = self.corrections.iter();
        let verdicts = self.verdicts.iter();
        Self {
            corrections: corrections
                .filter(|pair| pair.turns().into_iter().all(&keeps))
                .cloned()
                .collect(),
            verdicts: verdicts
                .filter(|(turn, _)| keeps(turn.id))
                .cloned()
                .collect(),
            spent: Vec::new(),
        }
    }

    fn by_id(&self) -> BTreeMap<TurnId, &Turn> {
        let pairs = self
            .corrections
            .iter()
            .flat_map(|pair| [&pair.failed, &pair.accepted]);
        let alone = self.verdicts.iter().map(|(turn, _)| turn);
        pairs.chain(alone).map(|turn| (turn.id, &**turn)).collect()
    }
}

// === impl Group ===

impl Group {
    /// The method that it is of.
    pub(crate) fn method(&self) -> &'static str {
        match self.loss {
            LossFn::CrossEntropy => "redo",
            LossFn::ImportanceSampling | LossFn::Ppo | LossFn::Cispo | LossFn::Dro => "binary_rl",
        }
    }
}

// === impl Sequence ===

impl Sequence {
    fn new(turns: Vec<TurnId>, datum: Result<Datum, DatumError>) -> Result<Self, NoSequence> {
        match datum {
            Ok(datum) => Ok(Self { datum, turns }),
            Err(error) => Err(NoSequence { turns, error }),
        }
    }

    /// How many ids the model reads.
    pub(crate) fn n_tokens(&self) -> usize {
        self.datum.parts().model_input_tokens.len()
    }
}

#[cfg(test)]
mod tests;
