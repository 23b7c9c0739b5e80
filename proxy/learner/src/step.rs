//! One step: planned, taken from the log, made by the trainer, tested, promoted, written down.
//!
//! Read `context` (what a step is made with, and where it starts), `plan`, `transaction` (a step in one of its states, which
//! holds the two stores together), `train` (a plan becomes a checkpoint, whatever fails on the way, or somebody is at
//! fault), then `recovery` and `preview`.

mod context;
mod fault;
mod micro_batches;
mod plan;
mod preview;
mod recovery;
mod train;
mod transaction;

pub use self::preview::{SamplePreview, SpentTurn, StepPreview, TokenPreview, TurnPreview};
pub(crate) use self::{
    context::TrainingContext,
    preview::{dry_run, turn_preview, turn_without_teacher},
    recovery::{recover, serve_again},
    transaction::{StepEnd, run},
};
