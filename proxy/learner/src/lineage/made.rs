//! Records how a checkpoint was made, so that it can be made again.

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

// === impl Provenance ===

impl Provenance {
    pub(crate) fn here(seed: u64, config: &RlConfig, replay: Option<Replayed>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("METACLAW_COMMIT").map(str::to_owned),
            seed,
            replay,
            // It contains numbers and words, which JSON can store.
            config: serde_json::to_value(config).unwrap_or_default(),
        }
    }
}
