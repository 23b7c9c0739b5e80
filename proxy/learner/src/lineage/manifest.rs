//! What a checkpoint is called, and what its manifest says: its base model, the numbers that the step measured, the
//! statistics of its samples, and how it was made, so that it can be made again.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_trainer_api::{
    AdapterName, CheckpointName, NameError,
    wire::{CheckpointInfo, Health},
};
use metaclaw_turns::Tokens;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::RlConfig;

/// A base model is identified by its content if that is known, otherwise by its name.
///
/// A name is a file's name, so the file may be renamed, or its content may change.
#[derive(Debug, Clone, Serialize, Deserialize, derive_more::Display)]
#[display("{name}")]
pub(crate) struct BaseModel {
    /// The base model as the trainer names it with what it samples.
    #[serde(rename = "base")]
    name: String,
    #[serde(
        rename = "base_fingerprint",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    fingerprint: Option<String>,
}

// === impl BaseModel ===

impl BaseModel {
    pub(crate) fn of_tokens(tokens: &Tokens) -> Self {
        Self {
            name: tokens.base.clone(),
            fingerprint: tokens.base_fingerprint.clone(),
        }
    }

    pub(crate) fn served(health: &Health) -> Self {
        Self {
            name: health.model.clone(),
            fingerprint: health.base_fingerprint.clone(),
        }
    }

    /// Returns whether both are the same, as far as is known.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.fingerprint, &other.fingerprint) {
            (Some(own), Some(theirs)) => own == theirs,
            (None, _) | (_, None) => self.name == other.name,
        }
    }

    pub(crate) fn may_be(&self, fingerprint: Option<&str>) -> bool {
        let own = self.fingerprint.as_deref();
        own.is_none() || fingerprint.is_none() || own == fingerprint
    }
}

#[cfg(test)]
impl BaseModel {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            fingerprint: None,
        }
    }
}

/// What a step measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// The sum of the losses of its forward_backward calls.
    pub loss: f64,
    /// The part of each method in that sum, with its weight.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<String, f64>,
    /// The global 2-norm of the gradient before clipping.
    pub grad_norm: f64,
    pub learning_rate: f64,
    /// Whether the trainer dropped an abnormal gradient, so that the weights did not change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The number of ids that the model read.
    pub n_tokens: usize,
    /// The number of ids that a server computes for it that shares the beginnings of sequences, as MetaClaw's own does.
    pub n_computed: usize,
    pub train_seconds: f64,
    /// The distance between the weights before the step and those that had sampled, or `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[serde(default)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[serde(default)]
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
    pub(crate) fn n_samples(&self) -> usize {
        self.samples.values().sum()
    }
}

// === impl Spread ===

impl Spread {
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Self::default();
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        Self {
            n: values.len(),
            mean,
            std: square.sqrt(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub(crate) version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    pub(crate) seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<Replayed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<DataSetUse>,
    /// The settings `rl.*` with their names at that time, so that the checkpoint can be read even after the settings
    /// change.
    pub(crate) config: Value,
}

/// The replay that made a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replayed {
    pub name: String,
    /// The seed of the initial weights if one was chosen, or `None` for the lineage's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Sessions that ended before this time, in Unix milliseconds, are left out; `None` includes all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

/// A data set, and the epoch of it that a checkpoint is of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataSetUse {
    pub file: String,
    pub hash: String,
    pub n_rows: u64,
    pub n_held_out: u64,
    /// From 1.
    pub epoch: u64,
    pub epochs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_before: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_loss: Option<f64>,
    /// The checkpoint that the first epoch started from; `None` for the base model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<CheckpointName>,
}

// === impl Provenance ===

impl Provenance {
    pub(crate) fn here(seed: u64, config: &RlConfig, replay: Option<Replayed>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("METACLAW_COMMIT").map(str::to_owned),
            seed,
            replay,
            data: None,
            // It contains numbers and words, which JSON can store.
            config: serde_json::to_value(config).unwrap_or_default(),
        }
    }
}

/// A checkpoint's manifest: written with it, and kept unchanged by the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CheckpointManifest {
    pub(crate) agent: AgentId,
    pub(crate) lineage: String,
    pub(crate) n: u64,
    pub(crate) turns: Vec<TurnId>,
    /// The number of each turn's use, from 1: how often it is in these weights. Empty in older manifests, when turns
    /// were used only once.
    #[serde(default)]
    pub(crate) uses: Vec<usize>,
    /// A hash of everything that the step was made of: the same hash means the same step.
    pub(crate) hash: String,
    pub(crate) parent: Option<CheckpointName>,
    pub(crate) shape: Shape,
    #[serde(default)]
    pub(crate) numbers: Numbers,
    #[serde(default)]
    pub(crate) batch: BatchStats,
    #[serde(default)]
    pub(crate) scores: BTreeMap<TurnId, Score>,
    /// How it was made; `None` in older checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<Provenance>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Shape {
    #[serde(flatten)]
    pub(crate) base: BaseModel,
    pub(crate) rank: u32,
    pub(crate) alpha: f64,
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct KnownCheckpoint {
    pub(crate) name: CheckpointName,
    pub(crate) steps: u64,
    /// The hash of its adapter's content, if the server reports one.
    pub(crate) sha256: Option<String>,
    pub(crate) manifest: CheckpointManifest,
}

pub(crate) fn known(checkpoints: Vec<CheckpointInfo>) -> Vec<KnownCheckpoint> {
    let read = |info: CheckpointInfo| {
        let manifest = serde_json::from_value(info.manifest).ok()?;
        Some(KnownCheckpoint {
            name: info.name,
            steps: info.step,
            sha256: info.sha256,
            manifest,
        })
    };
    checkpoints.into_iter().filter_map(read).collect()
}

/// Returns the name of an agent's `n`th adapter in a lineage; its checkpoint has the same name.
///
/// An agent's name contains only characters that such a name may have, and is short enough.
pub(crate) fn name(agent: &AgentId, lineage: &str, n: u64) -> String {
    format!("{agent}-{lineage}-{n:06}")
}

/// Returns [`name`] as the server's two kinds of name.
///
/// # Errors
/// Returns [`NameError`] for a lineage that was not made here.
pub(crate) fn names(
    agent: &AgentId,
    lineage: &str,
    n: u64,
) -> Result<(AdapterName, CheckpointName), NameError> {
    let name = name(agent, lineage, n);
    Ok((name.parse()?, name.parse()?))
}

// === impl Shape ===

impl Shape {
    pub(crate) fn new(base: BaseModel, rl: &RlConfig) -> Self {
        Self {
            base,
            rank: rl.lora_rank,
            alpha: rl.lora_alpha,
            targets: rl.targets.0.clone(),
        }
    }

    pub(crate) fn fits(&self, other: &Self) -> bool {
        self.base.is(&other.base)
            && self.rank == other.rank
            && self.alpha.to_bits() == other.alpha.to_bits()
            && self.targets == other.targets
    }

    pub(crate) fn change_from(&self, old: &Self) -> String {
        if self.base.is(&old.base) {
            format!(
                "rl.lora_rank, rl.lora_alpha or rl.targets has changed (rank {} to {}, alpha {} to {})",
                old.rank, self.rank, old.alpha, self.alpha
            )
        } else {
            format!("the base model has changed ({} to {})", old.base, self.base)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_counts_before_names() {
        let base = |name: &str, fingerprint: Option<&str>| BaseModel {
            name: name.to_owned(),
            fingerprint: fingerprint.map(str::to_owned),
        };
        let own = base("a", Some("1"));
        assert!(own.is(&base("b", Some("1"))), "renamed");
        assert!(!own.is(&base("a", Some("2"))), "another file");
        // It was written by an older version, or reported by another server.
        assert!(own.is(&base("a", None)) && !own.is(&base("b", None)));
        assert!(own.may_be(None) && own.may_be(Some("1")) && !own.may_be(Some("2")));
        assert!(base("a", None).may_be(Some("2")));
    }

    #[test]
    fn manifests_of_before_read_back() {
        let read: BaseModel = serde_json::from_str(r#"{"base":"a"}"#).unwrap();
        assert!(read.is(&BaseModel::named("a")));
    }

    #[test]
    fn a_spread_is_that_of_all_and_none_is_zero() {
        let spread = Spread::new([1.0, -1.0, -1.0, 1.0]);
        assert_eq!((spread.n, spread.mean, spread.std), (4, 0.0, 1.0));
        assert_eq!((spread.min, spread.max), (-1.0, 1.0));
        assert_eq!(Spread::new([]), Spread::default());
        assert!(Spread::new([0.3]).std.abs() < 1e-12);
    }

    #[test]
    fn numbers_of_before_read_back() {
        let old = r#"{"loss":1.0,"grad_norm":2.0,"learning_rate":0.1}"#;
        let read: Numbers = serde_json::from_str(old).unwrap();
        assert!(read.losses.is_empty() && read.drift.is_none());
    }
}
