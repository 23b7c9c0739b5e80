//! Lineages of checkpoints: where a step starts, and what its checkpoint is called.
//!
//! A lineage is an agent's series of checkpoints 1, 2, 3, … that contains each use of a turn once. The training
//! server's checkpoints define a lineage; the log says which lineage is the agent's.

mod ancestry;
mod base;
mod made;
mod manifest;
mod numbers;
mod resume;

pub use self::numbers::{BatchStats, Drift, Numbers, Spread};
pub(crate) use self::{
    ancestry::Ancestry,
    base::BaseModel,
    made::{Provenance, Replayed},
    manifest::{CheckpointManifest, KnownCheckpoint, Shape, known, names},
    resume::{Candidate, ResumePoint, Resumed, WantedStart},
};
