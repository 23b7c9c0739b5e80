//! Why an agent's files are not changed.

use std::{io, path::PathBuf};

use crate::found::DetectError;

/// Why the agent's file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// MetaClaw does not change a file with this layout.
    #[error("{} is left as it is: {reason}", path.display())]
    Layout {
        path: PathBuf,
        reason: String,
        /// What to add by hand.
        by_hand: String,
    },
    /// The file has no valid content for its format.
    #[error("{}: {reason}", path.display())]
    Unread { path: PathBuf, reason: String },
    /// The proxy has no key for the provider, and accepts only its own key from callers.
    #[error(
        "callers must show a key of ours (proxy.api_key, proxy.keys), so what the agent shows would not be passed on: set llm.api_key as well"
    )]
    KeyedLogin,
    /// The agent would use a name that the provider does not know.
    #[error("llm.model_id is not set, and the agent names no model that we could ask for: set it")]
    NoModel,
    /// Another process wrote the file at the same moment.
    #[error("{} was written by somebody else at the same moment: try again", path.display())]
    Busy { path: PathBuf },
    /// OpenClaw has no configuration on this machine.
    #[error("no OpenClaw is configured here")]
    NoOpenClaw,
    /// OpenClaw's configuration does not say what it asks.
    #[error(transparent)]
    Detect(#[from] DetectError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}
