//! Lists of runs and checkpoints.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::models::OptimizerConfig;

/// The position of a page in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The first entry's number.
    pub offset: u64,
    /// The requested number of entries.
    pub limit: u64,
    /// The number of all entries.
    pub total_count: u64,
}

/// `GET training_runs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingRunsReply {
    pub training_runs: Vec<TrainingRun>,
    pub cursor: Cursor,
}

/// `GET training_runs/{id}`: a model, open or closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingRun {
    pub training_run_id: String,
    pub base_model: String,
    #[serde(default)]
    pub model_owner: String,
    pub is_lora: bool,
    #[serde(default)]
    pub corrupted: bool,
    pub lora_rank: Option<u32>,
    /// In ISO 8601.
    pub last_request_time: String,
    /// The last checkpoint of kind `training`.
    pub last_checkpoint: Option<Checkpoint>,
    /// The last checkpoint of kind `sampler`.
    pub last_sampler_checkpoint: Option<Checkpoint>,
    pub user_metadata: Option<Map<String, Value>>,
}

/// `GET checkpoints` and `GET training_runs/{id}/checkpoints`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointList {
    /// The checkpoints of one page, or all.
    pub checkpoints: Vec<Checkpoint>,
    /// The page; null for all.
    pub cursor: Option<Cursor>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// For example `weights/step-1`.
    pub checkpoint_id: String,
    /// `training`, `sampler` or `external`.
    pub checkpoint_type: String,
    /// When it was written, in ISO 8601.
    pub time: String,
    pub tinker_path: String,
    pub size_bytes: Option<u64>,
    /// Whether others may read the checkpoint.
    #[serde(default)]
    pub public: bool,
    pub user_metadata: Option<Map<String, Value>>,
    /// When it expires, in ISO 8601; null means never.
    pub expires_at: Option<String>,
}

/// `POST weights_info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsInfoRequest {
    /// `tinker://…`.
    pub tinker_path: String,
}

/// Answer to [`WeightsInfoRequest`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsInfo {
    pub base_model: String,
    #[serde(default)]
    pub optimizer_config: OptimizerConfig,
    pub is_lora: bool,
    pub lora_rank: Option<u32>,
    /// Whether the unembedding has an adapter.
    pub train_unembed: Option<bool>,
    /// Whether gate, up, down have one.
    pub train_mlp: Option<bool>,
    /// Whether q, k, v, o have one.
    pub train_attn: Option<bool>,
}
