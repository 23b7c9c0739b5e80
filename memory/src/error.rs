//! Why a memory could not be read or stored.

use std::{io, path::PathBuf};

use crate::memory::MAX_CHARS;

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("the text of a memory is empty: write one line of 1 to {MAX_CHARS} characters")]
    Empty,
    #[error("the text of a memory has {length} characters: at most {MAX_CHARS} are allowed")]
    TooLong {
        /// Its length in characters.
        length: usize,
    },
    #[error("there is no memory {0:?}: `metaclaw memory list` shows the ids")]
    Unknown(String),
    #[error("cannot use {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

// === impl MemoryError ===

impl MemoryError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
