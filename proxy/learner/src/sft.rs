//! Training from a data set: supervised fine-tuning on chats, and direct preference optimisation on pairs of replies.
//!
//! It goes beside the training task, and an agent is locked meanwhile, so that no step of its turns is made. Each epoch ends
//! with a checkpoint whose name follows from the data and the settings. So a run that was interrupted is continued by
//! asking for the same again, and nothing of it is in the turn log.

mod epochs;
mod fine_tuning;
mod plan;
mod rows;
mod types;

pub(crate) use self::fine_tuning::fine_tune;
pub use self::{
    rows::SftError,
    types::{
        HeldOutRows, RateSchedule, SftEpoch, SftEvent, SftOrigin, SftPlanned, SftReport, SftStep,
        SftWanted,
    },
};
