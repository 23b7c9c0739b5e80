//! Lines of checkpoints: what a step continues, and what it is called.
//!
//! A lineage is an agent's row of checkpoints 1, 2, 3, … in which each use of a turn stands once. The training
//! server's checkpoints are the truth about it; the log says which lineage is the agent's.

mod ancestry;
mod base;
mod made;
mod manifest;
mod numbers;
mod resume;

pub use self::numbers::{BatchStats, Drift, Numbers, RolloutStats, Spread};
pub(crate) use self::{
    ancestry::Ancestry,
    base::BaseModel,
    made::{DataSetUse, Provenance, Replayed},
    manifest::{CheckpointManifest, KnownCheckpoint, Shape, known, names},
    resume::{Candidate, ResumePoint, Resumed, WantedStart},
};
