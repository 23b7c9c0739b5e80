//! The base model that an adapter belongs to, and the shapes that it must fit.

use serde::{Deserialize, Serialize};

use crate::lora::BaseDims;
use crate::model_config::ModelConfig;

/// The base model that an adapter belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseId {
    /// The base model's name, as a person would write it.
    #[serde(rename = "base_name")]
    pub name: String,
    /// A hash of its weights.
    #[serde(rename = "base_fingerprint")]
    pub fingerprint: String,
}

/// The base model that an adapter must fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseSpec {
    pub id: BaseId,
    pub dims: BaseDims,
    pub n_layers: usize,
}

// === impl BaseSpec ===

impl BaseSpec {
    /// The specification of a model of this family.
    pub fn new(id: BaseId, config: &ModelConfig) -> Self {
        Self {
            id,
            dims: BaseDims::of(config),
            n_layers: config.n_layers,
        }
    }
}
