//! Models: creation, gradients, steps, weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use smart_default::SmartDefault;

use crate::tinker::{ModelId, SamplerId, TinkerSessionId};
use crate::{DEFAULT_LEARNING_RATE, DEFAULT_RANK};

/// `POST create_model`: a promise of [`CreatedModel`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_model")]
pub struct CreateModel {
    pub session_id: TinkerSessionId,
    /// The model's number in its session, from 0.
    pub model_seq_id: u32,
    pub base_model: String,
    pub user_metadata: Option<Map<String, Value>>,
    /// The adapter; the SDK always sends one.
    pub lora_config: Option<LoraConfig>,
    pub optimizer_config: Option<OptimizerConfig>,
}

#[derive(Debug, Clone, Copy, SmartDefault, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoraConfig {
    #[default(DEFAULT_RANK)]
    pub rank: u32,
    /// The seed of the initial weights; random if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[default(true)]
    pub train_unembed: bool,
    #[default(true)]
    pub train_mlp: bool,
    /// The projections q, k, v, o.
    #[default(true)]
    pub train_attn: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// For example `adamw`.
    #[serde(rename = "type")]
    pub kind: String,
}

// === impl OptimizerConfig ===

impl Default for OptimizerConfig {
    fn default() -> Self {
        let kind = "adamw".to_owned();
        Self { kind }
    }
}

/// The result of [`CreateModel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_model")]
pub struct CreatedModel {
    /// `{session}:train:{n}`.
    pub model_id: ModelId,
    /// A message about parts of the request that were not carried out. The SDK does not read it. Ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// `POST get_info`, answered immediately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "get_info")]
pub struct GetInfo {
    pub model_id: ModelId,
}

/// Answer to [`GetInfo`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "get_info")]
pub struct ModelInfo {
    pub model_id: ModelId,
    pub model_data: ModelData,
    pub is_lora: Option<bool>,
    pub lora_rank: Option<u32>,
    /// The same value as in `model_data`.
    pub model_name: Option<String>,
    pub optimizer_config: Option<OptimizerConfig>,
    /// The same message as [`CreatedModel::warning`]. Ours.
    pub warning: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelData {
    /// For example `llama`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The model's name, as create_model accepts it. The SDK needs it.
    pub model_name: Option<String>,
    /// The tokenizer, as `AutoTokenizer` opens it: a name at the hub or a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer_id: Option<String>,
}

/// `POST optim_step`: a promise of [`OptimStepped`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "optim_step")]
pub struct OptimStep {
    pub model_id: ModelId,
    /// The number of the call, from 1.
    pub seq_id: Option<u32>,
    pub adam_params: Option<AdamParams>,
    /// The parameters of another optimiser.
    pub optimizer_params: Option<OptimizerConfig>,
}

#[derive(Debug, Clone, Copy, SmartDefault, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdamParams {
    #[default(DEFAULT_LEARNING_RATE)]
    pub learning_rate: f64,
    /// Decay of the first moment.
    #[default(0.9)]
    pub beta1: f64,
    /// Decay of the second moment.
    #[default(0.95)]
    pub beta2: f64,
    /// Added to the square root of the second moment.
    #[default(1e-12)]
    pub eps: f64,
    pub weight_decay: f64,
    /// The largest global gradient norm; 0 switches it off.
    pub grad_clip_norm: f64,
}

/// The result of [`OptimStep`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimStepped {
    /// Metrics by free names, such as `grad_norm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<BTreeMap<String, f64>>,
}

/// `POST save_weights`: a promise of [`SavedWeights`] with its path.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "save_weights")]
pub struct SaveWeights {
    pub model_id: ModelId,
    /// The checkpoint's name; if absent, the server chooses one.
    pub path: Option<String>,
    /// The number of the model's call, from 1.
    pub seq_id: Option<u32>,
    /// When it may be deleted.
    pub ttl_seconds: Option<u64>,
    /// Whether a checkpoint of this name is replaced.
    #[serde(default)]
    pub overwrite: bool,
    pub user_metadata: Option<Map<String, Value>>,
}

/// The result of [`SaveWeights`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWeights {
    /// `tinker://…`.
    pub path: String,
    /// `save_weights` or `load_weights`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// For load_weights, the model that now has the weights.
    pub model_id: Option<ModelId>,
}

/// `POST load_weights`: a promise of [`SavedWeights`]. With a session it creates a model, with the checkpoint's rank
/// and targets; with a model it is the older form.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "load_weights")]
pub struct LoadWeights {
    /// Older form: the model.
    pub model_id: Option<ModelId>,
    /// Older form: the number of its call, from 1.
    pub seq_id: Option<u32>,
    /// The session of the new model.
    pub session_id: Option<TinkerSessionId>,
    /// The new model's number.
    pub model_seq_id: Option<u32>,
    /// The base model, if it is not the checkpoint's.
    pub base_model: Option<String>,
    pub user_metadata: Option<Map<String, Value>>,
    /// `tinker://…/weights/…`.
    pub path: String,
    /// Whether the optimiser's state is loaded too.
    pub optimizer: bool,
    /// The LoRA settings of a new model, if they are not the checkpoint's.
    pub optimizer_config: Option<OptimizerConfig>,
}

/// `POST save_weights_for_sampler`: with a path, or for one client only.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "save_weights_for_sampler")]
pub struct SaveForSampler {
    pub model_id: ModelId,
    /// The name of the saved weights.
    pub path: Option<String>,
    /// Or the session's next sampler.
    pub sampling_session_seq_id: Option<u32>,
    /// `snapshot`, or `inflight` for a sampler that follows the model.
    pub kind: Option<String>,
    /// The number of the model's call, from 1.
    pub seq_id: Option<u32>,
    /// When they may be deleted.
    pub ttl_seconds: Option<u64>,
    pub user_metadata: Option<Map<String, Value>>,
}

/// The result of [`SaveForSampler`].
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "save_weights_for_sampler")]
pub struct SavedForSampler {
    /// The path of a named save: `tinker://…/sampler_weights/…`.
    pub path: Option<String>,
    pub sampling_session_id: Option<SamplerId>,
}

/// `POST unload_model`, and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "unload_model")]
pub struct UnloadModel {
    pub model_id: ModelId,
}
