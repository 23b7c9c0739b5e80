//! What a step measured and what its samples were like, in numbers: its checkpoint's manifest keeps them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a step measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Sum of the losses of its forward_backward calls.
    pub loss: f64,
    /// The part of each method in that sum, with its weight.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<String, f64>,
    /// Global 2-norm of the gradient before clipping.
    pub grad_norm: f64,
    pub learning_rate: f64,
    /// Whether the trainer dropped the gradient, which was out of line: the weights stayed as they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// Ids that the model read.
    #[serde(default)]
    pub n_tokens: usize,
    #[serde(default)]
    pub train_seconds: f64,
    /// How far the weights before the step were from those that had sampled; none where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
}

/// How far weights have moved, over the sampled ids that a step pushes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Mean of |log p now - log p when sampled|, in nats.
    pub logprob_abs_diff: f64,
    /// Mean of log p when sampled - log p now, in nats: the simplest estimate of the KL divergence.
    pub kl: f64,
}

/// What the samples of a step were like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchStats {
    /// Samples of each method.
    pub samples: BTreeMap<String, usize>,
    /// Scores of its turns, each -1, 0 or +1.
    pub reward: Spread,
    /// The share of good ones among them.
    pub success_rate: f64,
    /// Advantages of the samples that are pushed by their verdict, with the verdict's weight.
    pub advantage: Spread,
    /// Sampled ids of its turns.
    pub response_len: Spread,
    /// Mean log-probabilities of its turns' ids when they were sampled, in nats a token, at T = 1.
    pub logprob: Spread,
    /// The share of its turns whose reply was cut at its most tokens.
    pub truncated_ratio: f64,
    /// Optimiser steps behind the weights that sampled its turns, where that is known.
    pub version: Spread,
}

/// Some numbers in short. All are 0 where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub n: usize,
    pub mean: f64,
    /// Their population standard deviation.
    pub std: f64,
    pub min: f64,
    pub max: f64,
}

// === impl Numbers ===

impl Numbers {
    /// Adds what a later step on the same batch measured: the loss stays the first one's.
    pub(crate) fn goes_on(&mut self, later: &Self) {
        self.grad_norm = later.grad_norm;
        self.skipped |= later.skipped;
        self.n_tokens += later.n_tokens;
        self.train_seconds += later.train_seconds;
    }
}

// === impl BatchStats ===

impl BatchStats {
    /// Samples of all methods.
    pub(crate) fn n_samples(&self) -> usize {
        self.samples.values().sum()
    }
}

// === impl Spread ===

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Self::default();
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / n;
        Self {
            n: values.len(),
            mean,
            std: square.sqrt(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_that_of_all_and_none_is_zero() {
        let spread = Spread::of([1.0, -1.0, -1.0, 1.0]);
        assert_eq!((spread.n, spread.mean, spread.std), (4, 0.0, 1.0));
        assert_eq!((spread.min, spread.max), (-1.0, 1.0));
        assert_eq!(Spread::of([]), Spread::default());
        assert!(Spread::of([0.3]).std.abs() < 1e-12);
    }

    #[test]
    fn numbers_of_before_read_back() {
        let old = r#"{"loss":1.0,"grad_norm":2.0,"learning_rate":0.1}"#;
        let read: Numbers = serde_json::from_str(old).unwrap();
        assert!(read.losses.is_empty() && read.drift.is_none());
    }
}
