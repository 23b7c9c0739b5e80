//! One token from a row of logits, with both of its log-probabilities.
//!
//! Training needs two numbers for every token: what the untempered model gives it over the whole
//! vocabulary (both sides of a ratio are computed so), and what it was drawn with.

use tch::{Kind, TchError, Tensor};

use crate::rng::SplitMix64;

/// How tokens are drawn. The order is temperature, then top-k, then top-p, as in `transformers`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// The smallest set of likeliest tokens that holds this much probability; 1 is all.
    pub top_p: f64,
    /// So many of the likeliest tokens; 0 is all.
    pub top_k: usize,
    /// The same seed, prompt, adapter and parameters give the same reply.
    pub seed: u64,
}

/// A parameter that is out of range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}, allowed: {allowed}")]
pub struct ParamError {
    /// Which parameter.
    pub field: &'static str,
    /// What was given.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

/// Why no token could be drawn.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// A damaged adapter or an overflow.
    #[error("the model's logits are not finite: the adapter or the weights are damaged")]
    NotFinite,
    /// libtorch refused.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// A token as it was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// The token.
    pub id: u32,
    /// Natural logarithm of its probability at temperature 1 over the whole vocabulary.
    pub logprob: f32,
    /// Of its probability as drawn: after temperature, top-k and top-p, which leave the rest renormalised.
    pub sampling_logprob: f32,
}

/// Draws the tokens of one sequence.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    rng: SplitMix64,
}

/// Beyond this temperature replies are noise, and small ones overflow; either is a mistake of the caller.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 1e-3..=100.0;
/// First look at the likeliest tokens: nearly always holds all that top-p keeps.
const FIRST_LOOK: i64 = 512;

// === impl SamplingParams ===

impl Default for SamplingParams {
    /// The policy server's defaults: all of the distribution, T = 0.7.
    fn default() -> Self {
        Self {
            temperature: 0.7,
            top_p: 1.0,
            top_k: 0,
            seed: 0,
        }
    }
}

impl SamplingParams {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ParamError> {
        if self.temperature != 0.0 && !TEMPERATURES.contains(&self.temperature) {
            return Err(ParamError {
                field: "temperature",
                value: self.temperature.to_string(),
                allowed: format!("0, or {} to {}", TEMPERATURES.start(), TEMPERATURES.end()),
            });
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(ParamError {
                field: "top_p",
                value: self.top_p.to_string(),
                allowed: "above 0, up to 1".into(),
            });
        }
        Ok(())
    }
}

// === impl Sampler ===

impl Sampler {
    /// A sampler at the start of its random sequence.
    ///
    /// # Errors
    /// As [`SamplingParams::check`].
    pub fn new(params: SamplingParams) -> Result<Self, ParamError> {
        params.check()?;
        Ok(Self {
            params,
            rng: SplitMix64::new(params.seed),
        })
    }

    /// Draws one token.
    ///
    /// # Shapes
    /// `logits`: `[vocab]`, f32.
    ///
    /// # Errors
    /// [`SampleError::NotFinite`] when there is a NaN or infinity among the logits.
    pub fn draw(&mut self, logits: &Tensor) -> Result<Drawn, SampleError> {
        let logprobs = logits.f_log_softmax(-1, Kind::Float)?;
        let (id, sampling_logprob) = if self.params.temperature == 0.0 {
            (logprobs.f_argmax(-1, false)?.f_int64_value(&[])?, 0.0)
        } else {
            self.draw_tempered(logits)?
        };
        let logprob = logprobs.f_double_value(&[id])?;
        if !logprob.is_finite() || !sampling_logprob.is_finite() {
            return Err(SampleError::NotFinite);
        }
        #[expect(clippy::cast_possible_truncation, reason = "f32 is what callers keep")]
        let [logprob, sampling_logprob] = [logprob as f32, sampling_logprob as f32];
        Ok(Drawn {
            id: u32::try_from(id).unwrap_or(u32::MAX),
            logprob,
            sampling_logprob,
        })
    }

    fn draw_tempered(&mut self, logits: &Tensor) -> Result<(i64, f64), SampleError> {
        // In f64, so that a sum over a large vocabulary ends at 1 and no tail token is lost.
        let tempered = logits.f_div_scalar(self.params.temperature)?;
        let probs = tempered.f_softmax(-1, Kind::Double)?;
        let (kept, ids) = self.keep(&probs)?;
        let sums = kept.f_cumsum(-1, Kind::Double)?;
        let n = kept.size1()?;
        let mass = sums.f_double_value(&[n - 1])?;
        if !mass.is_finite() {
            return Err(SampleError::NotFinite);
        }
        let point = Tensor::f_from_slice(&[self.rng.unit() * mass])?;
        let found = point.f_searchsorted(&sums, false, true, "right", None::<Tensor>)?;
        let place = found.f_int64_value(&[0])?.min(n - 1);
        let id = match ids {
            Some(ids) => ids.f_int64_value(&[place])?,
            None => place,
        };
        Ok((id, (kept.f_double_value(&[place])? / mass).ln()))
    }

    /// The probabilities that top-k and top-p keep, and whose they are where that is not all in order.
    fn keep(&self, probs: &Tensor) -> Result<(Tensor, Option<Tensor>), TchError> {
        let vocab = probs.size1()?;
        let top_k = i64::try_from(self.params.top_k)
            .unwrap_or(i64::MAX)
            .min(vocab);
        let top_k = if top_k == 0 { vocab } else { top_k };
        let top_p = self.params.top_p;
        if top_p >= 1.0 {
            if top_k == vocab {
                return Ok((probs.shallow_clone(), None));
            }
            let (kept, ids) = probs.f_topk(top_k, -1, true, true)?;
            return Ok((kept, Some(ids)));
        }
        // A full sort only where the likeliest few do not hold top-p.
        let mut look = top_k.min(FIRST_LOOK);
        loop {
            let (kept, ids) = probs.f_topk(look, -1, true, true)?;
            // Top-p is a share of what top-k left.
            let whole = match top_k {
                k if k == vocab => 1.0,
                k if k == look => kept.f_sum(Kind::Double)?.f_double_value(&[])?,
                k => probs
                    .f_topk(k, -1, true, false)?
                    .0
                    .f_sum(Kind::Double)?
                    .f_double_value(&[])?,
            };
            let sums = kept.f_cumsum(-1, Kind::Double)?;
            let below = sums
                .f_lt(top_p * whole)?
                .f_sum(Kind::Int64)?
                .f_int64_value(&[])?;
            if below < look || look == top_k {
                let n = (below + 1).min(look);
                return Ok((kept.f_narrow(0, 0, n)?, Some(ids.f_narrow(0, 0, n)?)));
            }
            look = top_k;
        }
    }
}

#[cfg(test)]
mod tests;
