//! Lines of checkpoints: what a step continues, and what it is called.
//!
//! A lineage is an agent's row of checkpoints 1, 2, 3, … in which each use of a turn stands once. The training
//! server's checkpoints are the truth about it; the log says which lineage is the agent's.

mod manifest;
mod resume;

pub use self::manifest::{BatchStats, DataSetUse, Drift, Numbers, Replayed, RolloutStats, Spread};
pub(crate) use self::{
    manifest::{BaseModel, CheckpointManifest, KnownCheckpoint, Provenance, Shape, known, names},
    resume::{Ancestry, Candidate, ResumePoint, Resumed, WantedStart},
};
