//! The state of the server.

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::LossFn;

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
