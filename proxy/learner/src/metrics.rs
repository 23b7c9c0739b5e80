//! The numbers of each training step, for whoever watches: lines of JSON, and TensorBoard's event files.
//!
//! [`StepRecord`] names them; [`Recorder`] writes them where `rl.report_to` says. Nothing waits for it and
//! nothing fails by it: numbers that cannot be written are missing there, and stand in the checkpoint's manifest.

mod crc32c;
mod event_file;
mod record;
mod recorder;

pub(crate) use self::record::StepRecord;
pub use self::recorder::{Recorder, ReportTo};
