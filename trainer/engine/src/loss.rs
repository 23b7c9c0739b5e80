//! What a token contributes to a loss, and how that changes with its log-probability.
//!
//! Every loss here is a plain **sum** over positions, targets and datums, as Tinker's are: no mean, no
//! mask. Each term depends on the parameters through one log-probability alone, so a loss is one
//! pure function: log-probability in, term and its derivative out. `head.rs` turns derivatives into gradients.

use std::collections::BTreeMap;

/// A loss and its constants.
///
/// With `l` the log-probability of the target now, `q` when it was sampled, `A` the advantage and
/// `ratio = exp(l - q)`. Clip bounds are absolute bounds of the ratio, not distances from 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// `-w l`; weights may be negative, and there may be several targets a position.
    CrossEntropy,
    /// `-ratio A`.
    ImportanceSampling,
    /// `-min(ratio A, clip(ratio) A)` (<https://arxiv.org/abs/1707.06347>).
    Ppo {
        /// Bounds of the ratio.
        clip: Clip,
    },
    /// `-sg[clip(ratio)] l A` (<https://arxiv.org/abs/2506.13585>): bounds a token's pull, never removes it.
    Cispo {
        /// Bounds of the ratio.
        clip: Clip,
    },
    /// `-(l A - beta/2 (l - q)^2)` (<https://arxiv.org/abs/2405.19107>).
    Dro {
        /// Pull towards the sampler; above 0.
        beta: f64,
    },
}

/// Bounds of a probability ratio, `0 <= low <= high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// Smallest ratio.
    pub low: f64,
    /// Largest ratio.
    pub high: f64,
}

/// What the caller says about one target of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Signal {
    /// The weight of cross_entropy, the advantage of the others.
    pub weight: f32,
    /// Log-probability under the sampler; 0 for cross_entropy.
    pub sampled: f32,
}

/// A term of the sum and its derivative by the log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// Added to the loss.
    pub loss: f64,
    /// Its derivative.
    pub grad_logprob: f64,
}

/// Why a loss cannot be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LossError {
    /// No such loss.
    #[error("loss_fn {name:?} is unknown: allowed are {}", Loss::NAMES.join(", "))]
    Unknown {
        /// What was given.
        name: String,
    },
    /// A key that the loss does not read.
    #[error("loss_fn_config {key:?} is not a key of {loss}: allowed are {allowed}")]
    Key {
        /// What was given.
        key: String,
        /// The loss.
        loss: &'static str,
        /// Its keys.
        allowed: String,
    },
    /// A value out of range.
    #[error("loss_fn_config of {loss}: {key} is {value}, allowed: {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// The loss.
        loss: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
}

const CLIP_LOW: &str = "clip_low_threshold";
const CLIP_HIGH: &str = "clip_high_threshold";
const BETA: &str = "beta";

impl Loss {
    /// The names of Tinker's interface that are known here.
    pub const NAMES: [&'static str; 5] = [
        "cross_entropy",
        "importance_sampling",
        "ppo",
        "cispo",
        "dro",
    ];

    /// A loss by name with `loss_fn_config`.
    ///
    /// Defaults: ppo 0.8 and 1.2, cispo 0 and 4 (Tinker's tutorial 202), dro beta 0.05 (the example in
    /// Tinker's documentation, which names no default).
    ///
    /// # Errors
    /// An unknown name or key, or a value out of range.
    pub fn named(name: &str, config: &BTreeMap<String, f64>) -> Result<Self, LossError> {
        let loss = match name {
            "cross_entropy" => Self::CrossEntropy,
            "importance_sampling" => Self::ImportanceSampling,
            "ppo" => Self::Ppo {
                clip: Clip::read("ppo", config, 0.8, 1.2)?,
            },
            "cispo" => Self::Cispo {
                clip: Clip::read("cispo", config, 0.0, 4.0)?,
            },
            "dro" => Self::Dro {
                beta: read_beta(config)?,
            },
            _ => return Err(LossError::Unknown { name: name.into() }),
        };
        let known = loss.keys();
        match config.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(LossError::Key {
                key: key.clone(),
                loss: loss.name(),
                allowed: if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                },
            }),
            None => Ok(loss),
        }
    }

    /// Its name on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CrossEntropy => "cross_entropy",
            Self::ImportanceSampling => "importance_sampling",
            Self::Ppo { .. } => "ppo",
            Self::Cispo { .. } => "cispo",
            Self::Dro { .. } => "dro",
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
    pub fn is_masked(&self, signal: Signal) -> bool {
        signal.weight == 0.0
    }

    /// The term of one target whose log-probability is `l`.
    ///
    /// A masked target gives zeros and nothing else: `exp` of its made-up log-probability may overflow,
    /// and infinity times advantage 0 is no number.
    pub fn term(&self, l: f64, signal: Signal) -> Term {
        if self.is_masked(signal) {
            return Term {
                loss: 0.0,
                grad_logprob: 0.0,
            };
        }
        let (weight, sampled) = (f64::from(signal.weight), f64::from(signal.sampled));
        let ratio = (l - sampled).exp();
        match *self {
            Self::CrossEntropy => Term {
                loss: -weight * l,
                grad_logprob: -weight,
            },
            Self::ImportanceSampling => Term {
                loss: -ratio * weight,
                grad_logprob: -ratio * weight,
            },
            Self::Ppo { clip } => {
                let (unclipped, clipped) = (ratio * weight, clip.clamp(ratio) * weight);
                // At a tie the ratio lies within its bounds, where both are the unclipped one.
                if unclipped <= clipped {
                    Term {
                        loss: -unclipped,
                        grad_logprob: -unclipped,
                    }
                } else {
                    Term {
                        loss: -clipped,
                        grad_logprob: 0.0,
                    }
                }
            }
            Self::Cispo { clip } => {
                let clipped = clip.clamp(ratio) * weight;
                Term {
                    loss: -clipped * l,
                    grad_logprob: -clipped,
                }
            }
            Self::Dro { beta } => {
                let gap = l - sampled;
                Term {
                    loss: 0.5 * beta * gap * gap - l * weight,
                    grad_logprob: beta * gap - weight,
                }
            }
        }
    }
}

impl Clip {
    fn clamp(self, ratio: f64) -> f64 {
        ratio.clamp(self.low, self.high)
    }

    fn read(
        loss: &'static str,
        config: &BTreeMap<String, f64>,
        low: f64,
        high: f64,
    ) -> Result<Self, LossError> {
        let low = config.get(CLIP_LOW).copied().unwrap_or(low);
        let high = config.get(CLIP_HIGH).copied().unwrap_or(high);
        if !(0.0..f64::INFINITY).contains(&low) {
            let allowed = "a number from 0 up";
            return Err(LossError::Value {
                key: CLIP_LOW,
                loss,
                value: low,
                allowed,
            });
        }
        if !(low..f64::INFINITY).contains(&high) {
            let allowed = "a number from clip_low_threshold up";
            return Err(LossError::Value {
                key: CLIP_HIGH,
                loss,
                value: high,
                allowed,
            });
        }
        Ok(Self { low, high })
    }
}

fn read_beta(config: &BTreeMap<String, f64>) -> Result<f64, LossError> {
    let beta = config.get(BETA).copied().unwrap_or(0.05);
    if beta > 0.0 && beta.is_finite() {
        return Ok(beta);
    }
    let allowed = "a number above 0";
    Err(LossError::Value {
        key: BETA,
        loss: "dro",
        value: beta,
        allowed,
    })
}

#[cfg(test)]
mod tests;
