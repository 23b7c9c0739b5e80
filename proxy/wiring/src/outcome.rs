//! What became of a change.

use std::{io, path::PathBuf};

use crate::document::PlaceError;

/// What was done to the agent's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do.
    Nothing,
    /// It asks us first now.
    Wired,
    /// It is byte for byte as it was.
    Restored,
    /// Others had written it since: our keys alone were taken out.
    TakenBack,
    /// The file is gone.
    Gone,
}

/// Why the agent's file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// Its layout is one that we do not change.
    #[error("{} is left as it is: {reason}", path.display())]
    Layout {
        path: PathBuf,
        reason: String,
        /// What to add by hand.
        by_hand: String,
    },
    /// The proxy has no key for the provider, and takes only its own from callers.
    #[error(
        "callers must show a key of ours (proxy.api_key, proxy.keys), so what the agent shows would not be passed on: set llm.api_key as well"
    )]
    KeyedLogin,
    /// The agent would ask for a name that the provider does not know.
    #[error("llm.model_id is not set, and the agent is to ask for a name of ours: set it")]
    NoModel,
    /// Somebody wrote it at the same moment.
    #[error("{} was written by somebody else at the same moment: try again", path.display())]
    Busy { path: PathBuf },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl From<PlaceError> for String {
    fn from(error: PlaceError) -> Self {
        error.to_string()
    }
}
