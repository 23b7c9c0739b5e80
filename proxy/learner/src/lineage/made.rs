//! With what a checkpoint was made, so that it can be made again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::RlConfig;

/// The program and the settings that made a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub(crate) version: String,
    /// The commit that it was built from; none where it was not built in a checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The seed of the first weights of its lineage.
    pub(crate) seed: u64,
    /// The replay that made it; none of a step that was made beside the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<Replayed>,
    /// `rl.*` as it was in force, in the words of its time: whatever becomes of them, the checkpoint reads back.
    pub(crate) config: Value,
}

/// A replay, as the checkpoints that it makes tell of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replayed {
    /// Its name, by its owner.
    pub(crate) name: String,
    /// The seed of the first weights, where one was chosen: else the lineage's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
    /// Sessions that ended before, in Unix milliseconds, are not in it; none: all are.
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
            // Of numbers and words, which JSON can hold.
            config: serde_json::to_value(config).unwrap_or_default(),
        }
    }
}
