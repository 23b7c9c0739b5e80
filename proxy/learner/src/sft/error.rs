//! Why a data set is not trained on.

use std::{io, path::PathBuf};

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{DatumError, NameError};
use metaclaw_turns::LogError;

use super::rows::RowError;
use crate::error::TrainError;

/// Why a data set was not trained on.
#[derive(Debug, thiserror::Error)]
pub enum SftError {
    #[error("cannot read {file}: {source}", file = file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("{file} has {n} MB: at most {most} MB, so split it", file = file.display())]
    Large { file: PathBuf, n: u64, most: u64 },
    #[error("{file} has no row: one JSON object a line", file = file.display())]
    Empty { file: PathBuf },
    #[error("{file}, {error}", file = file.display())]
    Row { file: PathBuf, error: RowError },
    #[error("{file} has {held_out} and {other} {trained}: both need the same format", file = file.display(), other = other.display())]
    Mixed {
        file: PathBuf,
        held_out: &'static str,
        other: PathBuf,
        trained: &'static str,
    },
    #[error("{field} is {value}, allowed: {allowed}")]
    Setting {
        field: &'static str,
        value: String,
        allowed: &'static str,
    },
    #[error("{n} row: at least 2 are needed to hold one out; --held-out 0 holds none out")]
    Few { n: usize },
    #[error("{0}")]
    NoStart(String),
    /// A training server of another kind.
    #[error(
        "the training server does not say where the assistant's text begins (POST /tokenize with split_reply): run metaclaw-trainer there"
    )]
    NoSplit,
    #[error(
        "the training server does not score replies, so that no held-out loss can be measured: --held-out 0 trains without one"
    )]
    NoScores,
    #[error(
        "the training server does not score replies, and pairs are trained by what they are scored at: train chats, or run metaclaw-trainer there"
    )]
    NoPairs,
    /// The server refused the work; what earlier epochs came to is there.
    #[error("the training server refused: {0}")]
    Refused(String),
    #[error("another training of agent {agent} has been asked for")]
    Busy { agent: AgentId },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("a row cannot be sent: {0}")]
    Datum(#[from] DatumError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

// === impl SftError ===

impl From<LogError> for SftError {
    fn from(error: LogError) -> Self {
        Self::Train(error.into())
    }
}
