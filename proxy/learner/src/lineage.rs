//! Lines of checkpoints: what a step continues, and what it is called.
//!
//! A lineage is an agent's row of checkpoints 1, 2, 3, … in which each use of a turn stands once. The training
//! server's checkpoints are the truth about it; the log says which lineage is the agent's.

mod manifest;
mod resume;

pub use self::manifest::{BatchStats, Drift, Numbers, RolloutStats, Spread};
pub(crate) use self::{
    manifest::{
        BaseModel, CheckpointManifest, DataSetUse, KnownCheckpoint, Provenance, Replayed, Shape,
        known, names,
    },
    resume::{Ancestry, Candidate, ResumePoint, Resumed, WantedStart},
};
