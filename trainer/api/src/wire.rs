//! Requests and replies of the REST API: `spec/remote-training.md`, and MetaClaw's extensions.
//!
//! Field names and defaults are those of the community fork's `remote` backend. Fields that only this server sends are
//! optional for a client, so that the fork's replies are understood too.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use smart_default::SmartDefault;

use crate::{
    AdapterName, CheckpointName, DEFAULT_LEARNING_RATE, DEFAULT_RANK, Datum, LossConfig, LossFn,
    RunId,
};

fn yes() -> bool {
    true
}

fn ok() -> String {
    "ok".to_owned()
}

// Runs: creation, gradients, steps, adapters, checkpoints.

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
    /// The matrices to adapt, for example `q_proj` or `lm_head`; the seven projections of a layer if absent. Not in the
    /// fork's API.
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
    /// SHA-256 of its content, as in [`AdapterInfo::sha256`]. Not in the fork's API.
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
    /// SHA-256 of its adapter's content, as in [`AdapterInfo::sha256`].
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

// Adapters and checkpoints in memory and on disk: lists and deletion.

/// `GET /v1/adapters`. Not in the fork's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptersReply {
    /// Every adapter on disk, by name.
    pub adapters: Vec<AdapterInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInfo {
    pub name: AdapterName,
    /// Whether it is in memory now.
    pub loaded: bool,
    /// The number of optimiser steps in it; 0 if it does not say.
    #[serde(default)]
    pub step: u64,
    /// SHA-256 of its content (rank, alpha, every parameter by name), in hexadecimal digits; the same content has the
    /// same hash under any name. Null for files of other programs, until the adapter is loaded.
    pub sha256: Option<String>,
    /// Bytes of memory that it takes while it is loaded.
    pub bytes: Option<u64>,
}

/// `POST /v1/load_lora_adapter`, as in vLLM: loads it into memory before the first request needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadAdapterRequest {
    pub lora_name: AdapterName,
    /// The `adapter_path` that weights/save returned, if given; no other path is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora_path: Option<String>,
}

/// Answer to [`LoadAdapterRequest`]; a second request for a loaded adapter gets the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadAdapterReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// The same as [`AdapterInfo::step`].
    pub step: u64,
    /// The same as [`AdapterInfo::sha256`].
    pub sha256: String,
    /// The same as [`AdapterInfo::bytes`].
    pub bytes: u64,
}

/// `POST /v1/unload_lora_adapter`, as in vLLM: frees its memory once the replies that use it have ended; the files
/// stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadAdapterRequest {
    pub lora_name: AdapterName,
}

/// Answer to [`UnloadAdapterRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadReply {
    /// Whether it was in memory.
    pub unloaded: bool,
}

/// `DELETE /v1/adapters/{name}` and `DELETE /v1/checkpoints/{name}`: delete its files. Not in the fork's API.
///
/// 409 while it is in use: by a reply, as the default of requests without a model, or by an open run that is at this
/// checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
}

/// `POST /v1/checkpoints/prune`: deletes unneeded files. Not in the fork's API.
///
/// Of each line of checkpoints (a run's, and those of runs that continued from one of them), the last ones stay, as
/// many as `--keep` says; the checkpoints named here and those in use stay too. A checkpoint is deleted together with
/// the adapter of its name. Only this call and `DELETE` delete anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneRequest {
    /// The checkpoints that serve, and those that a step may start from.
    #[serde(default)]
    pub keep: Vec<CheckpointName>,
}

/// Answer to [`PruneRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneReply {
    /// The deleted names, oldest first.
    pub deleted: Vec<CheckpointName>,
}

/// `POST /v1/lora/close`: frees a run's memory; its checkpoints stay. Not in the fork's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseRunRequest {
    pub session_id: RunId,
}

/// Answer to [`CloseRunRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseRunReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
}

// Text and ids: sampling, tokenising, sampled ids of replies.

/// `POST /v1/sample`; the defaults are the fork's.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    pub tokens: Vec<u32>,
    #[serde(default = "sample_defaults::num_samples")]
    pub num_samples: u32,
    /// 0 means greedy.
    #[serde(default = "sample_defaults::temperature")]
    pub temperature: f64,
    /// At most this many new tokens.
    #[serde(default = "sample_defaults::max_tokens")]
    pub max_tokens: u32,
    /// The number of most probable ids to draw from; 0 or -1 switches it off.
    #[serde(default = "sample_defaults::top_k")]
    pub top_k: i64,
    /// The most probable ids with this total probability are drawn from; 1 switches it off.
    #[serde(default = "sample_defaults::top_p")]
    pub top_p: f64,
    /// The text that ends a continuation, and is not part of it.
    pub stop: Option<Stop>,
    /// An adapter, `base`, or (if absent) the last saved one. Not in the fork's API.
    pub model: Option<String>,
    /// The seed of the first continuation; each further one adds 1. Not in the fork's API.
    pub seed: Option<u64>,
}

// === impl SampleRequest ===

impl SampleRequest {
    /// One continuation of a prompt at temperature 1, by the adapter that was saved last.
    pub fn new(tokens: Vec<u32>) -> Self {
        Self {
            tokens,
            num_samples: sample_defaults::num_samples(),
            temperature: 1.0,
            max_tokens: sample_defaults::max_tokens(),
            top_k: 0,
            top_p: 1.0,
            stop: None,
            model: None,
            seed: None,
        }
    }

    /// The shortest possible use of a model (an adapter, or `base`).
    pub fn one_token(model: String) -> Self {
        Self {
            temperature: 0.0,
            max_tokens: 1,
            model: Some(model),
            ..Self::new(vec![0])
        }
    }
}

/// Defaults of [`SampleRequest`].
mod sample_defaults {
    pub(super) fn num_samples() -> u32 {
        1
    }
    pub(super) fn temperature() -> f64 {
        crate::DEFAULT_TEMPERATURE
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
#[serde(untagged, expecting = "a text or a list of texts")]
pub enum Stop {
    One(String),
    Many(Vec<String>),
}

impl Stop {
    /// Returns the strings without empty ones.
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
    /// As many as were requested.
    pub sequences: Vec<SampledSequence>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledSequence {
    pub tokens: Vec<u32>,
    /// Their log-probabilities at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
    /// Their log-probabilities in the distribution they were drawn from. Not in the fork's API.
    #[serde(default)]
    pub sampling_logprobs: Vec<f32>,
    /// `stop` or `length`.
    pub stop_reason: String,
    /// The text of the ids, without special tokens and without the stop text. Not in the fork's API.
    #[serde(default)]
    pub text: String,
}

/// `POST /tokenize`, as in vLLM: converts a text, or messages with the chat template. Not in the fork's API.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenizeRequest {
    /// Ignored here, because there is one tokenizer.
    pub model: Option<String>,
    pub prompt: Option<String>,
    pub messages: Option<Vec<Value>>,
    /// Tools for the template.
    pub tools: Option<Value>,
    /// Whether the text ends where the assistant's message begins.
    #[serde(default = "yes")]
    pub add_generation_prompt: bool,
    /// Variables of the template, such as `enable_thinking`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub chat_template_kwargs: Map<String, Value>,
    /// Whether to split the messages where the last one, an assistant's, begins: `tokens` ends with the token that ends
    /// it, and the answer has `reply_start`. Not in vLLM's API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub split_reply: bool,
}

// === impl TokenizeRequest ===

impl TokenizeRequest {
    /// Creates a request for a text without a template.
    pub fn text(prompt: impl Into<String>) -> Self {
        Self {
            prompt: Some(prompt.into()),
            messages: None,
            ..Self::messages(Vec::new())
        }
    }

    /// Creates a request for a conversation that ends where the assistant's message begins.
    pub fn messages(messages: Vec<Value>) -> Self {
        Self {
            model: None,
            prompt: None,
            messages: Some(messages),
            tools: None,
            add_generation_prompt: true,
            chat_template_kwargs: Map::new(),
            split_reply: false,
        }
    }
}

/// Answer to [`TokenizeRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizeReply {
    pub count: u32,
    pub max_model_len: u32,
    pub tokens: Vec<u32>,
    /// The number of tokens before the last message, if `split_reply` was set. Not in vLLM's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_start: Option<u32>,
}

/// `GET /v1/sampled/{reply id}`: the exact sampled ids of a reply. Not in the fork's API.
///
/// Stored for callers with the trainer key, in a limited part of memory, for 15 minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The reply's `id`.
    pub id: String,
    /// The model's input.
    pub prompt_ids: Vec<u32>,
    /// The model's output, including the ending token if one was drawn.
    pub ids: Vec<u32>,
    /// Log-probabilities of `ids` at temperature 1 over the full vocabulary.
    pub logprobs: Vec<f32>,
    /// Log-probabilities of `ids` in the distribution they were drawn from.
    pub sampling_logprobs: Vec<f32>,
    /// The adapter that sampled; null for the base model.
    pub adapter: Option<AdapterName>,
    /// The adapter's optimiser steps, if it has the number.
    pub version: Option<u64>,
    pub base: String,
    /// The fingerprint of its content, as in [`Health`].
    pub base_fingerprint: Option<String>,
}

// The state of the server.

/// `GET /v1/health`, which needs no key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `healthy` while the engine accepts work.
    pub status: String,
    /// The number of GPUs in use; 0 on a CPU.
    #[serde(default)]
    pub gpu_count: u32,
    /// The devices that are used, and their memory. Not in the fork's API.
    #[serde(default)]
    pub devices: Vec<DeviceInfo>,
    /// The model; empty before one is loaded, which the fork does with its first run.
    #[serde(default)]
    pub model: String,
    /// The fingerprint of the loaded base model's content: another file of the same name has another one, and the same
    /// model under another name has the same. Null before a model is loaded. Not in the fork's API.
    pub base_fingerprint: Option<String>,
    /// The number format of the computations: `f32`, `bf16` or `f16`. Null before a model is loaded. Not in the fork's
    /// API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The longest conversation with its reply, in tokens. Null if it is not known. Not in the fork's API.
    pub context: Option<u64>,
    /// The optimiser steps of the newest run; 0 before one exists.
    #[serde(default)]
    pub step: u64,
    /// `builtin` for MetaClaw's engine.
    #[serde(default)]
    pub inference_backend: String,
    /// The server that answers chats, if it is not MetaClaw's engine. Not in the fork's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inference: Option<Inference>,
    #[serde(default)]
    pub version: String,
    /// The capabilities of this server; a fork's server sends none.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// A device that a training server computes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// In PyTorch's form: `cpu`, `cuda:0`.
    pub name: String,
    /// Whether layers are trained there.
    #[serde(default)]
    pub training: bool,
    /// Whether replies are computed there.
    #[serde(default)]
    pub inference: bool,
    /// Bytes, by the device's own count; null if it does not report them.
    pub memory_total: Option<u64>,
    /// The free bytes; on a GPU, memory that libtorch keeps for itself is not free.
    pub memory_free: Option<u64>,
}

/// A server that answers chats for a training server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inference {
    pub url: String,
    /// Whether it can be used.
    pub state: InferenceState,
    pub why: Option<String>,
    /// The command that started it, if the training server did.
    pub command: Option<String>,
    /// The file of its output, in the same case.
    pub log: Option<String>,
}

/// Whether a server can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InferenceState {
    /// It does not answer: it is being started, or has ended.
    Away,
    /// It answers, but its results differ from those of the training server's engine.
    Refused,
    Ready,
}

/// What a training server can do beyond the fork's API.
///
/// The default describes the fork's server.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent yes-or-no facts, named on the wire"
)]
pub struct Capabilities {
    /// The available losses.
    #[default(vec![LossFn::ImportanceSampling, LossFn::Ppo, LossFn::Cispo])]
    pub losses: Vec<LossFn>,
    /// Whether `loss_fn_config` is read. A fork's server has limits of its own, which it does not report.
    pub loss_config: bool,
    /// Whether cross_entropy takes `[N, K]` targets.
    pub matrix_targets: bool,
    /// Whether `/v1/train/forward` exists.
    pub forward: bool,
    /// Whether checkpoints have a manifest and can be listed; without it, a step is made at most once.
    pub manifests: bool,
    /// Whether `/v1/sampled/{id}` and `/tokenize` exist.
    pub sampled: bool,
}

// === impl Capabilities ===

impl Capabilities {
    pub fn builtin() -> Self {
        Self {
            losses: LossFn::ALL.to_vec(),
            loss_config: true,
            matrix_targets: true,
            forward: true,
            manifests: true,
            sampled: true,
        }
    }
}

#[cfg(test)]
mod tests;
