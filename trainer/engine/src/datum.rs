//! One training sample, checked once.

mod error;

pub use self::error::DatumError;
use crate::loss::{Loss, Signal};

/// A sequence and what is to be learned at its positions.
///
/// With a full sequence `s` of N + 1 tokens `input_ids = s[..N]`; entry `i` of everything else is
/// about predicting `s[i + 1]`. `K` targets a position are possible for cross_entropy alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainDatum {
    /// `[N]`.
    pub input_ids: Vec<u32>,
    /// `[N, K]`, row-major.
    pub target_ids: Vec<u32>,
    /// K; 1 or more.
    pub targets_per_position: usize,
    /// `[N, K]`, for cross_entropy.
    pub weights: Option<Vec<f32>>,
    /// `[N]`, log-probabilities under the sampler, for the others.
    pub logprobs: Option<Vec<f32>>,
    /// `[N]`, for the others.
    pub advantages: Option<Vec<f32>>,
}

/// What a model can take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Tokens in the embedding.
    pub vocab: u32,
    /// Longest input.
    pub context: usize,
}

/// A datum that fits the model and the loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// `[N]`.
    pub input_ids: Vec<i64>,
    /// `[N, K]`.
    pub target_ids: Vec<i64>,
    /// K.
    pub targets_per_position: usize,
    /// `[N, K]`; empty when only log-probabilities are asked for.
    pub signals: Vec<Signal>,
}

const TARGETS: &str = "target_tokens";
const ADVANTAGES: &str = "advantages";
const LOGPROBS: &str = "logprobs";
const WEIGHTS: &str = "weights";

impl Sample {
    /// Checks datums against a model and a loss; `None` for log-probabilities alone.
    ///
    /// # Errors
    /// The first thing wrong, by datum, field, value and what is allowed.
    pub fn check_all(
        datums: &[TrainDatum],
        loss: Option<&Loss>,
        limits: Limits,
    ) -> Result<Vec<Self>, DatumError> {
        if datums.is_empty() {
            return Err(DatumError::None);
        }
        let check = |(datum, d)| Checked { d, datum }.sample(loss, limits);
        datums.iter().enumerate().map(check).collect()
    }

    /// Where the targets of a position are.
    pub fn at(&self, position: usize) -> std::ops::Range<usize> {
        position * self.targets_per_position..(position + 1) * self.targets_per_position
    }

    /// Of each position, whether a target of it has a loss.
    pub fn loss_positions(&self, loss: &Loss) -> Vec<bool> {
        let has_loss = |i: usize| {
            let at = &self.signals[self.at(i)];
            at.iter().any(|&signal| !loss.is_masked(signal))
        };
        (0..self.input_ids.len()).map(has_loss).collect()
    }
}

/// Of each position of each sample, whether it is listed; `None` lists all.
///
/// # Errors
/// [`DatumError::Positions`] and [`DatumError::Position`].
pub fn wanted(
    samples: &[Sample],
    positions: Option<&[Vec<usize>]>,
) -> Result<Vec<Vec<bool>>, DatumError> {
    let Some(positions) = positions else {
        let all = samples
            .iter()
            .map(|sample| vec![true; sample.input_ids.len()]);
        return Ok(all.collect());
    };
    if positions.len() != samples.len() {
        return Err(DatumError::Positions {
            found: positions.len(),
            wanted: samples.len(),
        });
    }
    let of_sample = |(datum, (sample, positions)): (usize, (&Sample, &Vec<usize>))| {
        let mut wanted = vec![false; sample.input_ids.len()];
        for (index, &position) in positions.iter().enumerate() {
            let ascends = index == 0 || positions[index - 1] < position;
            match wanted.get_mut(position) {
                Some(is_wanted) if ascends => *is_wanted = true,
                Some(_) | None => {
                    return Err(DatumError::Position {
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

/// A datum and its number, for messages.
struct Checked<'a> {
    d: &'a TrainDatum,
    datum: usize,
}

impl Checked<'_> {
    fn sample(&self, loss: Option<&Loss>, limits: Limits) -> Result<Sample, DatumError> {
        let Self { d, datum } = *self;
        let (n, k) = (d.input_ids.len(), d.targets_per_position);
        if n == 0 {
            return Err(DatumError::Empty { datum });
        }
        if n > limits.context {
            return Err(DatumError::TooLong {
                datum,
                found: n,
                max: limits.context,
            });
        }
        let many = matches!(loss, None | Some(Loss::CrossEntropy));
        if k == 0 || (k > 1 && !many) {
            let allowed = if many {
                "1 or more"
            } else {
                "1 with this loss"
            };
            return Err(DatumError::Targets {
                datum,
                found: k,
                allowed,
            });
        }
        self.length(TARGETS, d.target_ids.len(), k)?;
        let input_ids = self.ids("model_input_tokens", &d.input_ids, limits.vocab)?;
        let target_ids = self.ids(TARGETS, &d.target_ids, limits.vocab)?;
        let signals = match loss {
            None => Vec::new(),
            Some(Loss::CrossEntropy) => self.weights()?,
            Some(loss) => self.advantages(loss.name())?,
        };
        Ok(Sample {
            input_ids,
            target_ids,
            targets_per_position: k,
            signals,
        })
    }

    fn weights(&self) -> Result<Vec<Signal>, DatumError> {
        const LOSS: &str = "cross_entropy";
        let instead = "give the reply's weight in weights";
        self.unused(ADVANTAGES, self.d.advantages.as_ref(), LOSS, instead)?;
        let weights = self.numbers(
            WEIGHTS,
            self.d.weights.as_ref(),
            self.d.targets_per_position,
            LOSS,
        )?;
        Ok(weights
            .iter()
            .map(|&weight| Signal {
                weight,
                sampled: 0.0,
            })
            .collect())
    }

    fn advantages(&self, loss: &'static str) -> Result<Vec<Signal>, DatumError> {
        let instead = "multiply the advantages by it";
        self.unused(WEIGHTS, self.d.weights.as_ref(), loss, instead)?;
        let advantages = self.numbers(ADVANTAGES, self.d.advantages.as_ref(), 1, loss)?;
        let sampled = self.numbers(LOGPROBS, self.d.logprobs.as_ref(), 1, loss)?;
        let pairs = advantages.iter().zip(sampled);
        Ok(pairs
            .map(|(&weight, &sampled)| Signal { weight, sampled })
            .collect())
    }

    fn unused(
        &self,
        field: &'static str,
        given: Option<&Vec<f32>>,
        loss: &'static str,
        instead: &'static str,
    ) -> Result<(), DatumError> {
        match given {
            Some(_) => Err(DatumError::Unused {
                datum: self.datum,
                field,
                loss,
                instead,
            }),
            None => Ok(()),
        }
    }

    fn numbers<'a>(
        &self,
        field: &'static str,
        given: Option<&'a Vec<f32>>,
        k: usize,
        loss: &'static str,
    ) -> Result<&'a [f32], DatumError> {
        let datum = self.datum;
        let numbers = given.ok_or(DatumError::Missing { datum, field, loss })?;
        self.length(field, numbers.len(), k)?;
        match numbers.iter().position(|x| !x.is_finite()) {
            Some(index) => {
                let value = numbers[index];
                Err(DatumError::NotFinite {
                    datum,
                    field,
                    index,
                    value,
                })
            }
            None => Ok(numbers),
        }
    }

    fn length(&self, field: &'static str, found: usize, k: usize) -> Result<(), DatumError> {
        let n = self.d.input_ids.len();
        if Some(found) == n.checked_mul(k) {
            return Ok(());
        }
        let times = if k == 1 {
            String::new()
        } else {
            format!(", times {k} targets")
        };
        let wanted = n.saturating_mul(k);
        Err(DatumError::Length {
            datum: self.datum,
            field,
            found,
            wanted,
            n,
            times,
        })
    }

    fn ids(&self, field: &'static str, ids: &[u32], vocab: u32) -> Result<Vec<i64>, DatumError> {
        match ids.iter().position(|&id| id >= vocab) {
            Some(index) => {
                let (id, max) = (ids[index], vocab.saturating_sub(1));
                Err(DatumError::Id {
                    datum: self.datum,
                    field,
                    index,
                    id,
                    max,
                })
            }
            None => Ok(ids.iter().copied().map(i64::from).collect()),
        }
    }
}

#[cfg(test)]
mod tests;
