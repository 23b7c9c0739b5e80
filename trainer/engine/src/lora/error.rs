//! Why a set of adapters cannot be made.

use tch::TchError;

use super::projection::allowed_names;

/// Why a set of adapters cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    /// Rank 0, or wider than any projection could use.
    #[error("lora rank {rank} is not allowed: 1 to {max}")]
    Rank {
        rank: i64,
        /// The narrowest side of a projection of this model.
        max: i64,
    },
    /// The list of targets is empty.
    #[error("lora targets are empty: at least one of {}", allowed_names())]
    NoTargets,
    /// A map that this engine does not adapt.
    #[error("lora target {name:?} is unknown: allowed are {}", allowed_names())]
    UnknownTarget { name: String },
    /// A map that other models have.
    #[error("lora target {name:?} is not in this model, which has no linear attention")]
    NotInModel { name: String },
    /// Alpha 0 would switch the adapter off for good.
    #[error("lora alpha 0 is not allowed: 1 or more")]
    Alpha,
    /// A parameter is not there.
    #[error("tensor {name:?} is missing")]
    Missing { name: String },
    /// A tensor that belongs to no parameter of this set.
    #[error("tensor {name:?} belongs to no adapted map of this model")]
    Unexpected {
        /// The name as it was given.
        name: String,
    },
    /// A parameter of the wrong shape.
    #[error("tensor {name:?} has shape {found:?}, this model and rank need {wanted:?}")]
    Shape {
        name: String,
        found: Vec<i64>,
        /// The shape that fits.
        wanted: Vec<i64>,
    },
    #[error(transparent)]
    Torch(#[from] TchError),
}
