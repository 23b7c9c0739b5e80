//! Why the teacher has no result yet.

use metaclaw_trainer_api::BackendError;
use metaclaw_turns::LogError;

use crate::judge::AskFailed;

/// Why the teacher has not answered a turn, which waits.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TeachError {
    /// No turn can be sent.
    #[error(transparent)]
    Server(#[from] BackendError),
    /// This turn could not be sent while others can; it is tried again.
    #[error(transparent)]
    Turn(BackendError),
    #[error(transparent)]
    Judge(#[from] AskFailed),
    #[error(transparent)]
    Log(#[from] LogError),
}
