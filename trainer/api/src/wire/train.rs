//! Runs: create, gradients, steps, adapters, checkpoints.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ok, yes};
use crate::{
    CheckpointName, DEFAULT_LEARNING_RATE, DEFAULT_RANK, Datum, LossConfig, LossFn, RunId,
};

fn rank() -> u32 {
    DEFAULT_RANK
}

fn learning_rate() -> f64 {
    DEFAULT_LEARNING_RATE
}

fn importance_sampling() -> LossFn {
    LossFn::ImportanceSampling
}

/// `POST /v1/lora/create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateRequest {
    /// Name or path of the base model, or `owner/name`; empty or `base` for the one that is loaded.
    #[serde(default)]
    pub base_model: String,
    #[serde(default = "rank")]
    pub rank: u32,
    /// LoRA alpha, a whole number; 32 when absent, whatever the rank. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_alpha: Option<f64>,
    /// Seed of the first weights; drawn when absent. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Maps to adapt, as in `q_proj` or `lm_head`; the seven projections of a layer when absent. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

/// Answer to [`CreateRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateReply {
    pub session_id: RunId,
    /// `ready`.
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub rank: u32,
    /// Trainable and all parameters, as in `328.60M / 3890.12M`.
    #[serde(default)]
    pub trainable_params: String,
}

/// `POST /v1/train/forward_backward`. Gradients add up; weights do not move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardBackwardRequest {
    pub session_id: RunId,
    pub datums: Vec<Datum>,
    #[serde(default = "importance_sampling")]
    pub loss_fn: LossFn,
    #[serde(default, skip_serializing_if = "LossConfig::is_empty")]
    pub loss_fn_config: LossConfig,
}

/// Answer to [`ForwardBackwardRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardBackwardReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// The loss. Our server sums over tokens and datums; the fork averages over tokens.
    pub loss: f64,
    /// Positions with a non-zero weight or advantage; lets a client convert between sum and mean.
    pub total_tokens: u64,
    pub num_datums: u64,
    /// What the loss was computed from, one entry per datum, as Tinker's. Empty from a fork's server. Ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_fn_outputs: Vec<LossFnOutput>,
}

/// What forward_backward found of one datum.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LossFnOutput {
    /// Log-probabilities of `target_tokens` under the weights before the step, at temperature 1 over the full
    /// vocabulary: `[N]`, or `[N * K]` in row-major order. Null at positions without a weight or an
    /// advantage, which are not computed.
    pub logprobs: Vec<Option<f32>>,
}

/// `POST /v1/train/optim_step`: AdamW, then gradients to zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimStepRequest {
    pub session_id: RunId,
    #[serde(default = "learning_rate")]
    pub learning_rate: f64,
    #[serde(flatten)]
    pub adam: AdamSettings,
}

/// What AdamW takes besides the learning rate; an absent one has Tinker's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AdamSettings {
    /// Decay of the first moment, 0.9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f64>,
    /// Decay of the second moment, 0.95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f64>,
    /// Added to the root of the second moment, 1e-12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// Decoupled decay, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Bound of the global gradient norm; 0 is off, the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grad_clip_norm: Option<f64>,
    /// A step whose gradient norm is over so many times the median of the run's last 32 is skipped, 20; 0 skips none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_over: Option<f64>,
}

/// Answer to [`OptimStepRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimStepReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// Optimiser steps of this run so far.
    pub step: u64,
    /// Global 2-norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether the gradient was so far out of line that it was dropped and no step was taken. Ours.
    #[serde(default)]
    pub skipped: bool,
    /// Median of the norms before this one, which it was measured by; absent while there are too few. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_grad_norm: Option<f64>,
    /// Mean over the forward_backward calls since the last step, per token.
    #[serde(default)]
    pub avg_loss: f64,
    /// The rate that was used.
    #[serde(default)]
    pub learning_rate: f64,
}

/// `POST /v1/weights/save`: the run's adapter, ready to serve under `name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveWeightsRequest {
    pub session_id: RunId,
    /// The adapter's name; empty for `<session_id>-<step>`.
    #[serde(default)]
    pub name: String,
}

/// Answer to [`SaveWeightsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveWeightsReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    pub adapter_path: String,
    /// Optimiser steps in it.
    pub step: u64,
    /// SHA-256 of what it holds, as [`super::AdapterInfo::sha256`]. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// `POST /v1/checkpoint/save`: adapter, optimiser, step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSaveRequest {
    pub session_id: RunId,
    pub name: CheckpointName,
    /// Kept verbatim and listed again. Ours.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub manifest: Value,
}

/// Answer to [`CheckpointSaveRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSaveReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    pub path: String,
}

/// `POST /v1/checkpoint/load`: the run becomes what was saved; gradients are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointLoadRequest {
    pub session_id: RunId,
    /// What checkpoint/save returned as `path`, or the checkpoint's name.
    pub path: String,
}

/// Answer to [`CheckpointLoadRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointLoadReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// Optimiser steps in it.
    pub step: u64,
}

/// `GET /v1/checkpoints`. Ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointsReply {
    /// Every complete checkpoint, oldest first.
    pub checkpoints: Vec<CheckpointInfo>,
}

/// One checkpoint on the server's disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointInfo {
    pub name: CheckpointName,
    pub path: String,
    /// Optimiser steps in it.
    pub step: u64,
    /// SHA-256 of what its adapter holds, as [`super::AdapterInfo::sha256`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// What checkpoint/save was given; null if nothing.
    #[serde(default)]
    pub manifest: Value,
    /// When it was written, unix milliseconds.
    #[serde(default)]
    pub created_ms: u64,
}

/// `POST /v1/train/forward`: log-probabilities of given ids; touches no gradient. Ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardRequest {
    /// The run whose weights to use.
    pub session_id: RunId,
    /// The sequences; weights, logprobs and advantages are not looked at.
    pub datums: Vec<Datum>,
    /// With the run's adapter, or the base alone.
    #[serde(default = "yes")]
    pub adapter: bool,
    /// Positions of each datum, counted from 0, ascending; every position when absent. Only there is the
    /// vocabulary gone through: a reply behind a long prompt costs its own length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<Vec<Vec<usize>>>,
    /// How many of the likeliest ids to return at each position; 0 for none.
    #[serde(default)]
    pub top_k: u32,
}

/// Answer to [`ForwardRequest`], one entry per datum. All at temperature 1 over the full vocabulary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardReply {
    /// Log-probabilities of `target_tokens`, `[N]`, or `[N * K]` in row-major order, where N counts the positions that
    /// were asked for.
    pub logprobs: Vec<Vec<f32>>,
    /// `[N][top_k]` ids, the likeliest first; empty when `top_k` is 0.
    #[serde(default)]
    pub topk_ids: Vec<Vec<Vec<u32>>>,
    /// Their log-probabilities, of the same shape.
    #[serde(default)]
    pub topk_logprobs: Vec<Vec<Vec<f32>>>,
}

// === impl CreateRequest ===

impl Default for CreateRequest {
    fn default() -> Self {
        Self {
            base_model: String::new(),
            rank: DEFAULT_RANK,
            lora_alpha: None,
            seed: None,
            targets: None,
        }
    }
}
