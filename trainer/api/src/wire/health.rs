//! What there is: health, capabilities.

use serde::{Deserialize, Serialize};

use crate::LossFn;

/// `GET /v1/health`; open, no key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `healthy` while the engine takes work.
    pub status: String,
    /// GPUs in use; 0 on a CPU.
    #[serde(default)]
    pub gpu_count: u32,
    /// What is computed on, and its memory. Ours.
    #[serde(default)]
    pub devices: Vec<DeviceInfo>,
    /// The model; empty before one is loaded, which the fork does with its first run.
    #[serde(default)]
    pub model: String,
    /// Which base model is loaded, by content: another file of the same name has another one, and the same model under
    /// another name the same. Null before a model is loaded. Ours.
    #[serde(default)]
    pub base_fingerprint: Option<String>,
    /// The longest conversation with its reply, in tokens. Null where it is not known. Ours.
    #[serde(default)]
    pub context: Option<u64>,
    /// Optimiser steps of the newest run; 0 before one exists.
    #[serde(default)]
    pub step: u64,
    /// `builtin` for our engine.
    #[serde(default)]
    pub inference_backend: String,
    /// The server that answers chats, where it is not our engine. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inference: Option<Inference>,
    #[serde(default)]
    pub version: String,
    /// What this server can do; a fork's server says nothing.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// A device that a training server computes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// As PyTorch writes it: `cpu`, `cuda:0`.
    pub name: String,
    /// Whether layers are trained there.
    #[serde(default)]
    pub training: bool,
    /// Whether replies are computed there.
    #[serde(default)]
    pub inference: bool,
    /// Bytes, by the device's own count; null where it does not tell.
    #[serde(default)]
    pub memory_total: Option<u64>,
    /// Bytes that can still be had; of a GPU, what libtorch keeps for itself is not free.
    #[serde(default)]
    pub memory_free: Option<u64>,
}

/// A server that answers chats for a training server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inference {
    pub url: String,
    /// Whether it may be asked.
    pub state: InferenceState,
    #[serde(default)]
    pub why: Option<String>,
    /// How it was started, where the training server has started it.
    #[serde(default)]
    pub command: Option<String>,
    /// Where its output is, in the same case.
    #[serde(default)]
    pub log: Option<String>,
}

/// Whether a server may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InferenceState {
    /// It does not answer: it is being started, or has ended.
    Away,
    /// It answers, and what it computes is not what the training server's engine computes.
    Refused,
    Ready,
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
    /// Whether `loss_fn_config` is read. A fork's server has bounds of its own, which it does not tell.
    pub loss_config: bool,
    /// Whether cross_entropy takes `[N, K]` targets.
    pub matrix_targets: bool,
    /// Whether `/v1/train/forward` answers.
    pub forward: bool,
    /// Whether checkpoints keep a manifest and can be listed; without it a step is at most once.
    pub manifests: bool,
    /// Whether `/v1/sampled/{id}` and `/tokenize` answer.
    pub sampled: bool,
}

// === impl Capabilities ===

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            losses: vec![LossFn::ImportanceSampling, LossFn::Ppo, LossFn::Cispo],
            loss_config: false,
            matrix_targets: false,
            forward: false,
            manifests: false,
            sampled: false,
        }
    }
}

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
