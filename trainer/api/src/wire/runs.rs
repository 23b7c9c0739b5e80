//! Runs: creation, gradients, steps, adapters, checkpoints.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use smart_default::SmartDefault;

use super::defaults::{ok, yes};
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
#[skip_serializing_none]
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize)]
pub struct CreateRequest {
    /// Name or path of the base model, or `owner/name`; empty or `base` for the loaded one.
    #[serde(default)]
    pub base_model: String,
    #[serde(default = "rank")]
    #[default(DEFAULT_RANK)]
    pub rank: u32,
    /// LoRA alpha, a whole number; 32 if absent, whatever the rank. Not in the fork's API.
    pub lora_alpha: Option<f64>,
    /// The seed of the initial weights; random if absent. Not in the fork's API.
    pub seed: Option<u64>,
    /// The matrices to adapt, for example `q_proj` or `lm_head`; all projections of the model's layers if absent. Not in
    /// the fork's API.
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
    /// The number of trainable and of all parameters, for example `328.60M / 3890.12M`.
    #[serde(default)]
    pub trainable_params: String,
}

/// `POST /v1/train/forward_backward`. Gradients add up; weights do not change.
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
    /// The loss. This server sums over tokens and datums; the fork averages over tokens.
    pub loss: f64,
    /// The number of positions with a non-zero weight or advantage, with which a client can convert between sum and
    /// mean.
    pub total_tokens: u64,
    pub num_datums: u64,
    /// The log-probabilities behind the loss, one entry for each datum, as in Tinker. Empty from a fork's server. Not
    /// in the fork's API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_fn_outputs: Vec<LossFnOutput>,
}

/// The results of forward_backward for one datum.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LossFnOutput {
    /// Log-probabilities of `target_tokens` under the weights before the step, at temperature 1 over the full
    /// vocabulary: `[N]`, or `[N * K]` in row-major order. Null at positions without a weight or an
    /// advantage, which are not computed.
    pub logprobs: Vec<Option<f32>>,
}

/// `POST /v1/train/optim_step`: makes an AdamW step, then sets the gradients to zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimStepRequest {
    pub session_id: RunId,
    #[serde(default = "learning_rate")]
    pub learning_rate: f64,
    #[serde(flatten)]
    pub adam: AdamSettings,
}

/// AdamW's settings besides the learning rate; absent ones have Tinker's defaults.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AdamSettings {
    /// Decay of the first moment, 0.9.
    pub beta1: Option<f64>,
    /// Decay of the second moment, 0.95.
    pub beta2: Option<f64>,
    /// Added to the square root of the second moment, 1e-12.
    pub eps: Option<f64>,
    /// Decoupled decay, 0.
    pub weight_decay: Option<f64>,
    /// The largest global gradient norm; 0 switches it off, which is the default.
    pub grad_clip_norm: Option<f64>,
    /// A step is skipped if its gradient norm is more than this many times the median of the run's last 32, 20; 0 skips
    /// none.
    pub skip_over: Option<f64>,
}

/// Answer to [`OptimStepRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimStepReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// The number of optimiser steps of this run so far.
    pub step: u64,
    /// Global 2-norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether the gradient was so large that it was dropped and no step was made. Not in the fork's API.
    #[serde(default)]
    pub skipped: bool,
    /// The median of the earlier norms with which this one was compared; absent while there are too few. Not in the
    /// fork's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_grad_norm: Option<f64>,
    /// The mean over the forward_backward calls since the last step, for each token.
    #[serde(default)]
    pub avg_loss: f64,
    /// The rate that was used.
    #[serde(default)]
    pub learning_rate: f64,
}

/// `POST /v1/weights/save`: saves the run's adapter, ready to serve under `name`.
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
    /// The number of optimiser steps in it.
    pub step: u64,
    /// SHA-256 of its content, as in `AdapterInfo::sha256`. Not in the fork's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// `POST /v1/checkpoint/save`: saves adapter, optimiser and step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSaveRequest {
    pub session_id: RunId,
    pub name: CheckpointName,
    /// Stored unchanged and returned in lists. Not in the fork's API.
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

/// `POST /v1/checkpoint/load`: sets the run to the saved state; gradients are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointLoadRequest {
    pub session_id: RunId,
    /// The `path` that checkpoint/save returned, or the checkpoint's name.
    pub path: String,
}

/// Answer to [`CheckpointLoadRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointLoadReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// The number of optimiser steps in it.
    pub step: u64,
}

/// `GET /v1/checkpoints`. Not in the fork's API.
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
    /// The number of optimiser steps in it.
    pub step: u64,
    /// SHA-256 of its adapter's content, as in `AdapterInfo::sha256`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The text that checkpoint/save was given; null if none.
    #[serde(default)]
    pub manifest: Value,
    /// When it was written, in Unix milliseconds.
    #[serde(default)]
    pub created_ms: u64,
}

/// `POST /v1/train/forward`: computes log-probabilities of given ids without changing a gradient. Not in the fork's
/// API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardRequest {
    /// The run whose weights are used.
    pub session_id: RunId,
    /// The sequences; weights, logprobs and advantages are ignored.
    pub datums: Vec<Datum>,
    /// Whether the run's adapter is used, or the base model alone.
    #[serde(default = "yes")]
    pub adapter: bool,
    /// Positions of each datum, counted from 0, ascending; every position if absent. Logits are computed only there, so
    /// the cost of a reply after a long prompt depends on its own length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<Vec<Vec<usize>>>,
    /// The number of most probable ids to return at each position; 0 for none.
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
