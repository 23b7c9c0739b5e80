//! Why the teacher came to nothing yet.

use metaclaw_trainer_api::BackendError;
use metaclaw_turns::LogError;

use crate::judge::AskFailed;

/// Why the teacher has not answered a turn; it waits.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TeachError {
    #[error(transparent)]
    Server(#[from] BackendError),
    #[error(transparent)]
    Judge(#[from] AskFailed),
    #[error(transparent)]
    Log(#[from] LogError),
}
