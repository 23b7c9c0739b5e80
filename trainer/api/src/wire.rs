//! Requests and replies of the REST API: `spec/remote-training.md`, and what is ours besides.
//!
//! Field names and defaults are those of the community fork's `remote` backend. Fields that only our
//! server has are optional in what a client reads, so that the fork's replies are understood too.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{AdapterName, CheckpointName, Datum, LossConfig, LossFn, RunId};

/// Rank when none is asked for.
pub const DEFAULT_RANK: u32 = 32;
/// Learning rate when none is given: the fork's default, and Tinker's.
pub const DEFAULT_LEARNING_RATE: f64 = 1e-4;

fn rank() -> u32 {
    DEFAULT_RANK
}

fn learning_rate() -> f64 {
    DEFAULT_LEARNING_RATE
}

fn importance_sampling() -> LossFn {
    LossFn::ImportanceSampling
}

fn ok() -> String {
    "ok".to_owned()
}

fn yes() -> bool {
    true
}

/// `GET /v1/health`; open, no key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `healthy` while the engine takes work.
    pub status: String,
    /// GPUs in use; 0 on a CPU.
    #[serde(default)]
    pub gpu_count: u32,
    /// The model; empty before a run exists, as the fork has it.
    #[serde(default)]
    pub model: String,
    /// Optimiser steps of the newest run; 0 before one exists.
    #[serde(default)]
    pub step: u64,
    /// `builtin` for our engine.
    #[serde(default)]
    pub inference_backend: String,
    /// Of the server.
    #[serde(default)]
    pub version: String,
    /// What this server can do; a fork's server says nothing.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// What a training server can do beyond the fork's API.
///
/// The default is the fork's server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent yes-or-no facts, named on the wire"
)]
pub struct Capabilities {
    /// The losses it has.
    pub losses: Vec<LossFn>,
    /// Whether cross_entropy takes `[N, K]` targets.
    pub matrix_targets: bool,
    /// Whether `/v1/train/forward` answers.
    pub forward: bool,
    /// Whether checkpoints keep a manifest and can be listed; without it a step is at most once.
    pub manifests: bool,
    /// Whether `/v1/sampled/{id}` and `/tokenize` answer.
    pub sampled: bool,
}

/// `POST /v1/lora/create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateRequest {
    /// Name of the base model; empty or `base` for the one that is loaded.
    #[serde(default)]
    pub base_model: String,
    /// LoRA rank.
    #[serde(default = "rank")]
    pub rank: u32,
    /// LoRA alpha, a whole number; 32 when absent, whatever the rank. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_alpha: Option<f64>,
    /// Seed of the first weights; drawn when absent. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Projections to adapt, as in `q_proj`; all seven when absent. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

/// Answer to [`CreateRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateReply {
    /// The run.
    pub session_id: RunId,
    /// `ready`.
    #[serde(default)]
    pub status: String,
    /// The base model.
    #[serde(default)]
    pub model: String,
    /// LoRA rank.
    #[serde(default)]
    pub rank: u32,
    /// Trainable and all parameters, as in `328.60M / 3890.12M`.
    #[serde(default)]
    pub trainable_params: String,
}

/// `POST /v1/train/forward_backward`. Gradients add up; weights do not move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardBackwardRequest {
    /// The run.
    pub session_id: RunId,
    /// The sequences.
    pub datums: Vec<Datum>,
    /// The loss.
    #[serde(default = "importance_sampling")]
    pub loss_fn: LossFn,
    /// Its settings.
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
    /// How many sequences.
    pub num_datums: u64,
}

/// `POST /v1/train/optim_step`: AdamW, then gradients to zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimStepRequest {
    /// The run.
    pub session_id: RunId,
    /// Step size.
    #[serde(default = "learning_rate")]
    pub learning_rate: f64,
    /// AdamW's settings. Ours.
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
    /// The run.
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
    /// The PEFT directory.
    pub adapter_path: String,
    /// Optimiser steps in it.
    pub step: u64,
}

/// `POST /v1/checkpoint/save`: adapter, optimiser, step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSaveRequest {
    /// The run.
    pub session_id: RunId,
    /// The checkpoint's name.
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
    /// Its directory.
    pub path: String,
}

/// `POST /v1/checkpoint/load`: the run becomes what was saved; gradients are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointLoadRequest {
    /// The run.
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
    /// Its name.
    pub name: CheckpointName,
    /// Its directory.
    pub path: String,
    /// Optimiser steps in it.
    pub step: u64,
    /// What checkpoint/save was given; null if nothing.
    #[serde(default)]
    pub manifest: Value,
    /// When it was written, unix milliseconds.
    #[serde(default)]
    pub created_ms: u64,
}

/// `GET /v1/adapters`. Ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptersReply {
    /// Every adapter on disk or in memory, by name.
    pub adapters: Vec<AdapterInfo>,
}

/// One saved adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInfo {
    /// Its name.
    pub name: AdapterName,
    /// Whether it is in memory now.
    pub loaded: bool,
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
    /// How many of the likeliest ids to return at each position; 0 for none.
    #[serde(default)]
    pub top_k: u32,
}

/// Answer to [`ForwardRequest`], one entry per datum. All at temperature 1 over the full vocabulary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardReply {
    /// Log-probabilities of `target_tokens`, `[N]`, or `[N * K]` in row-major order.
    pub logprobs: Vec<Vec<f32>>,
    /// `[N][top_k]` ids, the likeliest first; empty when `top_k` is 0.
    #[serde(default)]
    pub topk_ids: Vec<Vec<Vec<u32>>>,
    /// Their log-probabilities, of the same shape.
    #[serde(default)]
    pub topk_logprobs: Vec<Vec<Vec<f32>>>,
}

/// `POST /v1/sample`; the defaults are the fork's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// How many continuations.
    #[serde(default = "sample_defaults::num_samples")]
    pub num_samples: u32,
    /// 0 is greedy.
    #[serde(default = "sample_defaults::temperature")]
    pub temperature: f64,
    /// At most this many new tokens.
    #[serde(default = "sample_defaults::max_tokens")]
    pub max_tokens: u32,
    /// Only the likeliest; 0 or -1 is off.
    #[serde(default = "sample_defaults::top_k")]
    pub top_k: i64,
    /// Only the likeliest that hold this much probability; 1 is off.
    #[serde(default = "sample_defaults::top_p")]
    pub top_p: f64,
    /// Ends a continuation; not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// An adapter, `base`, or the one last saved. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Of the first continuation; the others count up from it. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Defaults of [`SampleRequest`].
mod sample_defaults {
    pub(super) fn num_samples() -> u32 {
        1
    }
    pub(super) fn temperature() -> f64 {
        0.7
    }
    pub(super) fn max_tokens() -> u32 {
        2048
    }
    pub(super) fn top_k() -> i64 {
        50
    }
    pub(super) fn top_p() -> f64 {
        0.95
    }
}

/// One stop string, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Stop {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Stop {
    /// The strings, empty ones left out.
    pub fn into_strings(self) -> Vec<String> {
        let strings = match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        };
        strings.into_iter().filter(|s| !s.is_empty()).collect()
    }
}

/// Answer to [`SampleRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleReply {
    /// As many as were asked for.
    pub sequences: Vec<SampledSequence>,
}

/// One continuation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledSequence {
    /// New ids.
    pub tokens: Vec<u32>,
    /// Their log-probabilities at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
    /// Their log-probabilities in the distribution they were drawn from. Ours.
    #[serde(default)]
    pub sampling_logprobs: Vec<f32>,
    /// `stop` or `length`.
    pub stop_reason: String,
}

/// `POST /tokenize`, in vLLM's shape: a text, or messages through the chat template. Ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenizeRequest {
    /// Read by nobody here: there is one tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Or a conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Value>>,
    /// Tools that the template shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Value>,
    /// Whether the text ends where the assistant begins.
    #[serde(default = "yes")]
    pub add_generation_prompt: bool,
}

/// Answer to [`TokenizeRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizeReply {
    /// How many ids.
    pub count: u32,
    /// The model's context.
    pub max_model_len: u32,
    /// The ids.
    pub tokens: Vec<u32>,
}

/// `GET /v1/sampled/{reply id}`: what was sampled for a reply, exactly. Ours.
///
/// Kept for callers with the trainer key, in memory bounded in bytes, for 15 minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The reply's `id`.
    pub id: String,
    /// What the model read.
    pub prompt_ids: Vec<u32>,
    /// What it said, the ending token included if one was drawn.
    pub ids: Vec<u32>,
    /// Log-probabilities of `ids` at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
    /// Log-probabilities of `ids` in the distribution they were drawn from.
    pub sampling_logprobs: Vec<f32>,
    /// The adapter that sampled; null is the base.
    pub adapter: Option<AdapterName>,
    /// The adapter's optimiser steps, if it says.
    #[serde(default)]
    pub version: Option<u64>,
    /// The base model.
    pub base: String,
}

/// `DELETE /v1/adapters/{name}`: out of memory; the files stay. Ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadReply {
    /// Whether it had been in memory.
    pub unloaded: bool,
}

// === impl Capabilities ===

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            losses: vec![LossFn::ImportanceSampling, LossFn::Ppo, LossFn::Cispo],
            matrix_targets: false,
            forward: false,
            manifests: false,
            sampled: false,
        }
    }
}

impl Capabilities {
    /// Our own server.
    pub fn builtin() -> Self {
        Self {
            losses: LossFn::ALL.to_vec(),
            matrix_targets: true,
            forward: true,
            manifests: true,
            sampled: true,
        }
    }
}

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

#[cfg(test)]
mod tests;
