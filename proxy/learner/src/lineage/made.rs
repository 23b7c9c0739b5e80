//! With what a checkpoint was made, so that it can be made again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::RlConfig;

/// The program and the settings that made a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// MetaClaw's version.
    pub(crate) version: String,
    /// The commit that it was built from; none where it was not built in a checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The seed of the first weights of its lineage.
    pub(crate) seed: u64,
    /// `rl.*` as it was in force, in the words of its time: whatever becomes of them, the checkpoint reads back.
    pub(crate) config: Value,
}

// === impl Made ===

impl Made {
    /// By this program.
    pub(crate) fn here(seed: u64, config: &RlConfig) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("METACLAW_COMMIT").map(str::to_owned),
            seed,
            // Of numbers and words, which JSON can hold.
            config: serde_json::to_value(config).unwrap_or_default(),
        }
    }
}
