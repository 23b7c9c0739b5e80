//! One step: planned, taken from the log, made by the trainer, tested, promoted, written down.
//!
//! [`TrainingStep`](context::TrainingStep) is a step in one of its states, and holds the two stores together.
//! [`make`](train::make) turns a plan into a checkpoint, whatever fails on the way, or says who is at fault.

mod context;
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
