//! Checks datums against a model and a loss, once. A [`Datum`] already guarantees that its fields have one shape and
//! finite numbers.

mod error;

use metaclaw_trainer_terms::{Datum, LossFn};

pub use self::error::TrainInputError;
use crate::loss::{Loss, LossSignal};

/// The model's bounds on a datum.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Tokens in the embedding.
    pub vocab: u32,
    pub context: usize,
}

/// A datum that fits the model and the loss.
#[derive(Debug, Clone, PartialEq)]
pub struct LossSample {
    /// `[N]`.
    pub input_ids: Vec<i64>,
    /// `[N, K]`.
    pub target_ids: Vec<i64>,
    pub targets_per_position: usize,
    /// `[N, K]`; empty when only log-probabilities are asked for.
    pub signals: Vec<LossSignal>,
}

const INPUT: &str = "model_input_tokens";
const TARGETS: &str = "target_tokens";
const ADVANTAGES: &str = "advantages";
const LOGPROBS: &str = "logprobs";
const WEIGHTS: &str = "weights";

impl LossSample {
    /// Checks datums against a model and a loss. Without a loss, only log-probabilities are computed.
    ///
    /// # Errors
    /// The first thing wrong, by datum, field, value and what is allowed.
    pub fn check_all(
        datums: &[Datum],
        loss: Option<&Loss>,
        limits: Limits,
    ) -> Result<Vec<Self>, TrainInputError> {
        if datums.is_empty() {
            return Err(TrainInputError::None);
        }
        let loss = loss.map(Loss::loss_fn);
        let check = |(index, datum)| Numbered { index, datum }.sample(loss, limits);
        datums.iter().enumerate().map(check).collect()
    }

    /// The indices of a position's targets.
    pub fn at(&self, position: usize) -> std::ops::Range<usize> {
        position * self.targets_per_position..(position + 1) * self.targets_per_position
    }

    /// For each position, whether one of its targets has a loss.
    pub fn loss_positions(&self, loss: &Loss) -> Vec<bool> {
        let has_loss = |i: usize| {
            let at = &self.signals[self.at(i)];
            at.iter().any(|&signal| !loss.is_masked(signal))
        };
        (0..self.input_ids.len()).map(has_loss).collect()
    }
}

/// For each position of each sample, whether the caller lists it. `None` lists all.
///
/// # Errors
/// [`TrainInputError::Positions`] and [`TrainInputError::Position`].
pub fn wanted(
    samples: &[LossSample],
    positions: Option<&[Vec<usize>]>,
) -> Result<Vec<Vec<bool>>, TrainInputError> {
    let Some(positions) = positions else {
        let all = samples
            .iter()
            .map(|sample| vec![true; sample.input_ids.len()]);
        return Ok(all.collect());
    };
    if positions.len() != samples.len() {
        return Err(TrainInputError::Positions {
            found: positions.len(),
            wanted: samples.len(),
        });
    }
    let of_sample = |(datum, (sample, positions)): (usize, (&LossSample, &Vec<usize>))| {
        let mut wanted = vec![false; sample.input_ids.len()];
        for (index, &position) in positions.iter().enumerate() {
            let ascends = index == 0 || positions[index - 1] < position;
            match wanted.get_mut(position) {
                Some(is_wanted) if ascends => *is_wanted = true,
                Some(_) | None => {
                    return Err(TrainInputError::Position {
                        datum,
                        index,
                        position,
                        max: sample.input_ids.len() - 1,
                    });
                }
            }
        }
        Ok(wanted)
    };
    let pairs = samples.iter().zip(positions).enumerate();
    pairs.map(of_sample).collect()
}

struct Numbered<'a> {
    index: usize,
    datum: &'a Datum,
}

impl Numbered<'_> {
    fn sample(&self, loss: Option<LossFn>, limits: Limits) -> Result<LossSample, TrainInputError> {
        let (n, parts) = (self.datum.n_tokens(), self.datum.parts());
        if n > limits.context {
            return Err(TrainInputError::TooLong {
                datum: self.index,
                found: n,
                max: limits.context,
            });
        }
        let k = parts.target_tokens.width();
        if let Some(loss) = loss
            && loss != LossFn::CrossEntropy
            && k > 1
        {
            return Err(TrainInputError::Targets {
                datum: self.index,
                found: k,
                loss,
            });
        }
        Ok(LossSample {
            input_ids: self.ids(INPUT, &parts.model_input_tokens, limits.vocab)?,
            target_ids: self.ids(TARGETS, parts.target_tokens.values(), limits.vocab)?,
            targets_per_position: k,
            signals: match loss {
                None => Vec::new(),
                Some(LossFn::CrossEntropy) => self.weights()?,
                Some(loss) => self.advantages(loss)?,
            },
        })
    }

    fn weights(&self) -> Result<Vec<LossSignal>, TrainInputError> {
        let (loss, parts) = (LossFn::CrossEntropy, self.datum.parts());
        let instead = "give the reply's weight in weights";
        self.unused(ADVANTAGES, parts.advantages.is_some(), loss, instead)?;
        let weights = self.needed(WEIGHTS, parts.weights.as_ref(), loss)?;
        let signal = |&weight| LossSignal {
            weight,
            sampled: 0.0,
        };
        Ok(weights.values().iter().map(signal).collect())
    }

    fn advantages(&self, loss: LossFn) -> Result<Vec<LossSignal>, TrainInputError> {
        let parts = self.datum.parts();
        let instead = "multiply the advantages by it";
        self.unused(WEIGHTS, parts.weights.is_some(), loss, instead)?;
        let advantages = self.needed(ADVANTAGES, parts.advantages.as_ref(), loss)?;
        let sampled = self.needed(LOGPROBS, parts.logprobs.as_ref(), loss)?;
        let pairs = advantages.iter().zip(sampled);
        Ok(pairs
            .map(|(&weight, &sampled)| LossSignal { weight, sampled })
            .collect())
    }

    fn unused(
        &self,
        field: &'static str,
        is_given: bool,
        loss: LossFn,
        instead: &'static str,
    ) -> Result<(), TrainInputError> {
        if !is_given {
            return Ok(());
        }
        Err(TrainInputError::Unused {
            datum: self.index,
            field,
            loss,
            instead,
        })
    }

    fn needed<'a, T>(
        &self,
        field: &'static str,
        given: Option<&'a T>,
        loss: LossFn,
    ) -> Result<&'a T, TrainInputError> {
        let datum = self.index;
        given.ok_or(TrainInputError::Missing { datum, field, loss })
    }

    fn ids(
        &self,
        field: &'static str,
        ids: &[u32],
        vocab: u32,
    ) -> Result<Vec<i64>, TrainInputError> {
        match ids.iter().position(|&id| id >= vocab) {
            Some(index) => Err(TrainInputError::Id {
                datum: self.index,
                field,
                index,
                id: ids[index],
                max: vocab.saturating_sub(1),
            }),
            None => Ok(ids.iter().copied().map(i64::from).collect()),
        }
    }
}

#[cfg(test)]
mod tests;
