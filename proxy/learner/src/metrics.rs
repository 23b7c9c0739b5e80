//! Records the numbers of each training step as lines of JSON and as TensorBoard's event files: of steps on turns, and of
//! those on a data set.
//!
//! [`StepRecord`] names the numbers; [`Recorder`] writes them to the targets in `rl.report_to`. No step waits for the
//! recorder or fails because of it: numbers that cannot be written are missing there, but are in the checkpoint's
//! manifest.

mod event_file;
mod record;
mod recorder;
mod wandb;

pub(crate) use self::record::StepRecord;
pub use self::{
    recorder::{Recorder, ReportTo, StepFigures},
    wandb::WandbClient,
};
