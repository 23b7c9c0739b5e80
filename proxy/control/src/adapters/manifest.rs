//! What a checkpoint says of itself, as far as people are told of it.
//!
//! A training server keeps a manifest as it was given, and may have those of other programs: whatever is missing is left
//! out, and a manifest of another form says nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The parts of a manifest that are shown.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ManifestView {
    /// The lineage of the checkpoint.
    pub lineage: Option<String>,
    /// Its number there, from 1.
    pub n: Option<u64>,
    /// What it was trained from; none is the base model.
    pub parent: Option<String>,
    /// The turns of its step.
    pub turns: Vec<String>,
    /// The scores of those when the step took them.
    pub scores: BTreeMap<String, i64>,
    pub shape: ShapeView,
    pub numbers: NumbersView,
    pub batch: BatchView,
    pub made: Option<MadeView>,
}

/// What an adapter is of.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ShapeView {
    /// The base model's name.
    pub base: Option<String>,
    pub base_fingerprint: Option<String>,
    pub rank: u32,
    pub alpha: f64,
    /// The matrices that it adds to.
    pub targets: Vec<String>,
}

/// What a step measured.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NumbersView {
    pub loss: f64,
    /// The part of each method in it.
    pub losses: BTreeMap<String, f64>,
    pub grad_norm: f64,
    pub learning_rate: f64,
    /// Whether the gradient was out of line and was dropped.
    pub skipped: bool,
}

/// What the samples of a step were like.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BatchView {
    /// Samples of each method.
    pub samples: BTreeMap<String, u64>,
    pub reward: MeanView,
    pub advantage: MeanView,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MeanView {
    pub mean: f64,
}

/// With what a checkpoint was made.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MadeView {
    pub version: Option<String>,
    pub commit: Option<String>,
    /// The seed of the first weights of its lineage.
    pub seed: u64,
    /// The replay that made it; none of a step that was made beside the chat.
    pub replay: Option<ReplayView>,
    /// The data set that it was trained from; none of a step on turns.
    pub data: Option<DataSetView>,
    /// `rl.*` as it was in force, by key.
    pub config: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReplayView {
    pub name: Option<String>,
}

/// A data set, and the epoch of it that a checkpoint is of.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DataSetView {
    pub file: String,
    pub n_rows: u64,
    pub n_held_out: u64,
    pub epoch: u64,
    pub epochs: u64,
    pub held_out_before: Option<f64>,
    pub held_out_loss: Option<f64>,
}

// === impl ManifestView ===

impl ManifestView {
    /// What a manifest says; nothing of one of another form.
    pub fn read(manifest: &Value) -> Self {
        Self::deserialize(manifest).unwrap_or_default()
    }
}
