//! What a token contributes to a loss, and how that changes with its log-probability.
//!
//! Every loss here is a plain **sum** over positions, targets and datums, as Tinker's are: no mean, no
//! mask. Each term depends on the parameters through one log-probability alone, so a loss is one
//! pure function: log-probability in, term and its derivative out. `head.rs` turns derivatives into gradients.

use metaclaw_trainer_terms::{LossConfig, LossFn};

/// A loss and its constants. [`LossFn`] gives the formula of each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// [`LossFn::CrossEntropy`].
    CrossEntropy,
    /// [`LossFn::ImportanceSampling`].
    ImportanceSampling,
    /// [`LossFn::Ppo`].
    Ppo {
        /// Bounds of the ratio.
        clip: RatioClip,
    },
    /// [`LossFn::Cispo`].
    Cispo {
        /// Bounds of the ratio.
        clip: RatioClip,
    },
    /// [`LossFn::Dro`].
    Dro {
        /// Pull towards the sampler; above 0.
        beta: f64,
    },
}

/// Bounds of a probability ratio, `0 <= low <= high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioClip {
    pub low: f64,
    pub high: f64,
}

/// What the caller says about one target of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossSignal {
    /// The weight of `cross_entropy`; the advantage of all other losses.
    pub weight: f32,
    /// Log-probability under the sampler; 0 for cross_entropy.
    pub sampled: f32,
}

/// A term of the sum and its derivative by the log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// Added to the loss.
    pub loss: f64,
    pub grad_logprob: f64,
}

/// Why a loss cannot have these constants.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LossError {
    /// A key that the loss does not read.
    #[error("loss_fn_config {key:?} is not a key of {loss}: allowed are {allowed}")]
    Key {
        key: String,
        loss: LossFn,
        allowed: String,
    },
    /// A value out of range.
    #[error("loss_fn_config of {loss}: {key} is {value}, allowed: {allowed}")]
    Value {
        key: &'static str,
        loss: LossFn,
        value: f64,
        allowed: &'static str,
    },
}

const CLIP_LOW: &str = "clip_low_threshold";
const CLIP_HIGH: &str = "clip_high_threshold";
const BETA: &str = "beta";

impl Loss {
    /// A loss with the constants that `loss_fn_config` gives.
    ///
    /// Defaults: ppo 0.8 and 1.2, cispo 0 and 4 (Tinker's tutorial 202), dro beta 0.05 (the example in
    /// Tinker's documentation, which names no default).
    ///
    /// # Errors
    /// An unknown key, or a value out of range.
    pub fn new(loss: LossFn, config: &LossConfig) -> Result<Self, LossError> {
        let clip = |low, high| RatioClip::read(loss, config, low, high);
        let made = match loss {
            LossFn::CrossEntropy => Self::CrossEntropy,
            LossFn::ImportanceSampling => Self::ImportanceSampling,
            LossFn::Ppo => clip(0.8, 1.2).map(|clip| Self::Ppo { clip })?,
            LossFn::Cispo => clip(0.0, 4.0).map(|clip| Self::Cispo { clip })?,
            LossFn::Dro => read_beta(config).map(|beta| Self::Dro { beta })?,
        };
        let known = made.keys();
        match config.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(LossError::Key {
                key: key.clone(),
                loss,
                allowed: if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                },
            }),
            None => Ok(made),
        }
    }

    pub const fn loss_fn(&self) -> LossFn {
        match self {
            Self::CrossEntropy => LossFn::CrossEntropy,
            Self::ImportanceSampling => LossFn::ImportanceSampling,
            Self::Ppo { .. } => LossFn::Ppo,
            Self::Cispo { .. } => LossFn::Cispo,
            Self::Dro { .. } => LossFn::Dro,
        }
    }

    const fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::CrossEntropy | Self::ImportanceSampling => &[],
            Self::Ppo { .. } | Self::Cispo { .. } => &[CLIP_LOW, CLIP_HIGH],
            Self::Dro { .. } => &[BETA],
        }
    }

    /// Whether a target adds nothing whatever its probability, so that it need not be computed: weight 0 or
    /// advantage 0, as prompts have.
    ///
    /// In dro too, whose quadratic part would else hold the prompt to log-probabilities that nobody sampled.
    pub fn is_masked(&self, signal: LossSignal) -> bool {
        signal.weight == 0.0
    }

    /// The term of one target whose log-probability is `l`.
    ///
    /// A masked target gives zeros and nothing else: `exp` of its made-up log-probability may overflow,
    /// and infinity times advantage 0 is no number.
    pub fn term(&self, l: f64, signal: LossSignal) -> Term {
        if self.is_masked(signal) {
            return Term::new(0.0, 0.0);
        }
        let (weight, sampled) = (f64::from(signal.weight), f64::from(signal.sampled));
        let ratio = (l - sampled).exp();
        match *self {
            Self::CrossEntropy => Term::new(-weight * l, -weight),
            Self::ImportanceSampling => Term::new(-ratio * weight, -ratio * weight),
            Self::Ppo { clip } => {
                let (unclipped, clipped) = (ratio * weight, clip.clamp(ratio) * weight);
                // At a tie the ratio is within its bounds, where both terms are the unclipped one.
                if unclipped <= clipped {
                    Term::new(-unclipped, -unclipped)
                } else {
                    Term::new(-clipped, 0.0)
                }
            }
            Self::Cispo { clip } => {
                let clipped = clip.clamp(ratio) * weight;
                Term::new(-clipped * l, -clipped)
            }
            Self::Dro { beta } => {
                let gap = l - sampled;
                Term::new(0.5 * beta * gap * gap - l * weight, beta * gap - weight)
            }
        }
    }
}

impl Term {
    fn new(loss: f64, grad_logprob: f64) -> Self {
        Self { loss, grad_logprob }
    }
}

impl RatioClip {
    fn clamp(self, ratio: f64) -> f64 {
        ratio.clamp(self.low, self.high)
    }

    fn read(loss: LossFn, config: &LossConfig, low: f64, high: f64) -> Result<Self, LossError> {
        let low = config.get(CLIP_LOW).copied().unwrap_or(low);
        let high = config.get(CLIP_HIGH).copied().unwrap_or(high);
        let wrong = |key, value, allowed| LossError::Value {
            key,
            loss,
            value,
            allowed,
        };
        if !(0.0..f64::INFINITY).contains(&low) {
            return Err(wrong(CLIP_LOW, low, "a number from 0 up"));
        }
        if !(low..f64::INFINITY).contains(&high) {
            let allowed = "a number from clip_low_threshold up";
            return Err(wrong(CLIP_HIGH, high, allowed));
        }
        Ok(Self { low, high })
    }
}

fn read_beta(config: &LossConfig) -> Result<f64, LossError> {
    let beta = config.get(BETA).copied().unwrap_or(0.05);
    if beta > 0.0 && beta.is_finite() {
        return Ok(beta);
    }
    Err(LossError::Value {
        key: BETA,
        loss: LossFn::Dro,
        value: beta,
        allowed: "a number above 0",
    })
}

#[cfg(test)]
mod tests;
