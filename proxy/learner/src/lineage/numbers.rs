//! The numbers that a step measured, and the statistics of its samples, as its checkpoint's manifest keeps them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a step measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// The sum of the losses of its forward_backward calls.
    pub loss: f64,
    /// The part of each method in that sum, with its weight.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<String, f64>,
    /// The global 2-norm of the gradient before clipping.
    pub grad_norm: f64,
    pub learning_rate: f64,
    /// Whether the trainer dropped an abnormal gradient, so that the weights did not change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The number of ids that the model read.
    #[serde(default)]
    pub n_tokens: usize,
    /// The number of ids that a server computes for it that shares the beginnings of sequences, as MetaClaw's own does.
    #[serde(default)]
    pub n_computed: usize,
    #[serde(default)]
    pub train_seconds: f64,
    /// The distance between the weights before the step and those that had sampled, or `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
}

/// The distance between two versions of the weights, over the sampled ids that a step trains on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The mean of |log p now - log p when sampled|, in nats.
    pub logprob_abs_diff: f64,
    /// The mean of log p when sampled - log p now, in nats: the simplest estimate of the KL divergence.
    pub kl: f64,
}

/// Statistics of the samples of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchStats {
    /// The number of samples of each method.
    pub samples: BTreeMap<String, usize>,
    /// The scores of its turns, each -1, 0 or +1.
    pub reward: Spread,
    /// The share of good scores among them.
    pub success_rate: f64,
    /// The advantages from verdicts, with the verdict's weight.
    pub advantage: Spread,
    /// The number of sampled ids of its turns.
    pub response_len: Spread,
    /// The mean log-probabilities of its turns' ids when they were sampled, in nats per token, at T = 1.
    pub logprob: Spread,
    /// The share of its turns whose reply was cut at the token limit.
    pub truncated_ratio: f64,
    /// The number of optimiser steps behind the weights that sampled its turns, if it is known.
    pub version: Spread,
    /// The groups of a step of rollouts; none for other steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollouts: Option<RolloutStats>,
}

/// Statistics of the rollouts of a step, those of groups that are not trained on among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutStats {
    /// Rollouts with an outcome.
    pub n: usize,
    pub n_groups: usize,
    /// Groups whose outcomes say nothing, because they do not differ.
    pub n_without_difference: usize,
    /// The share of rollouts with an outcome above 0.
    pub success: f64,
    /// The share of groups in which at least one rollout has an outcome above 0.
    pub pass_at_k: f64,
}

/// A summary of some numbers. All fields are 0 if there are no numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub n: usize,
    pub mean: f64,
    /// The population standard deviation.
    pub std: f64,
    pub min: f64,
    pub max: f64,
}

// === impl Numbers ===

impl Numbers {
    /// Adds what a later pass over the same batch measured; the loss stays that of the first.
    pub(crate) fn goes_on(&mut self, later: &Self) {
        self.grad_norm = later.grad_norm;
        self.skipped |= later.skipped;
        self.n_tokens += later.n_tokens;
        self.n_computed += later.n_computed;
        self.train_seconds += later.train_seconds;
    }
}

// === impl BatchStats ===

impl BatchStats {
    /// Returns the number of samples of all methods.
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
