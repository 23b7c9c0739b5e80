//! Why the teacher came to nothing yet.

use metaclaw_trainer_api::BackendError;
use metaclaw_turns::LogError;

use crate::judge::AskFailed;

/// Why the teacher has not answered a turn; it waits.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TeachError {
    /// No turn can be asked.
    #[error(transparent)]
    Server(#[from] BackendError),
    /// This one could not be, while others can: it is tried again.
    #[error(transparent)]
    Turn(BackendError),
    #[error(transparent)]
    Judge(#[from] AskFailed),
    #[error(transparent)]
    Log(#[from] LogError),
}
