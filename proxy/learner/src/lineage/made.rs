//! Records how a checkpoint was made, so that it can be made again.

use metaclaw_trainer_api::CheckpointName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::RlConfig;

/// The program and the settings that made a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub(crate) version: String,
    /// The commit of the build, or `None` if it was not built in a checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The seed of the initial weights of its lineage.
    pub(crate) seed: u64,
    /// The replay that made it, or `None` for a step during normal use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<Replayed>,
    /// The data set that it was trained from, or `None` if it was trained from turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<DataSetUse>,
    /// The settings `rl.*` with their names at that time, so that the checkpoint can be read even after the settings
    /// change.
    pub(crate) config: Value,
}

/// A replay, as its checkpoints record it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replayed {
    /// The name that the owner gave it.
    pub(crate) name: String,
    /// The seed of the initial weights if one was chosen, or `None` for the lineage's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
    /// Sessions that ended before this time, in Unix milliseconds, are left out; `None` includes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since_ms: Option<u64>,
}

/// A data set, as the checkpoint of an epoch records it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DataSetUse {
    pub(crate) file: String,
    /// The hash of the files, in hexadecimal.
    pub(crate) hash: String,
    pub(crate) n_rows: usize,
    pub(crate) n_held_out: usize,
    /// From 1.
    pub(crate) epoch: u64,
    pub(crate) epochs: u64,
    /// The loss on the held-out rows before the first epoch; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_out_before: Option<f64>,
    /// The same after this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_out_loss: Option<f64>,
    /// The checkpoint that the first epoch started from; `None` for the base model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<CheckpointName>,
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
