//! Why a track's agent did not run to its end.

use std::{io, path::PathBuf};

use super::{policy::PolicyRequestError, task::TaskFileError};
use crate::sandbox::SandboxError;

/// Why a track's agent did not run to its end: its episode counts for nothing.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Policy(#[from] PolicyRequestError),
    #[error(transparent)]
    Task(#[from] TaskFileError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("task: {0}")]
    Field(String),
    #[error("the setup of the task failed: {0}")]
    Setup(String),
    #[error("the environment server at {url} does not do its part: {words}")]
    Environment { url: String, words: String },
    #[error(
        "the model does not read images: {words}. Use a model that does, or set `\"observation\": \"text\"` in the \
         task, with which the model is told in words what is on the screen"
    )]
    NoImages { words: String },
    #[error("cannot write the reward to {}: {source}", path.display())]
    Reward { path: PathBuf, source: io::Error },
}
