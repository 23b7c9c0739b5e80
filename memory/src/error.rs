//! Why a memory could not be read or stored.

use std::{io, path::PathBuf};

use crate::memory::MAX_CHARS;

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("a memory must say something, this one is empty")]
    Empty,
    #[error("a memory may have {MAX_CHARS} characters, this one has {length}")]
    TooLong {
        /// Its length in characters.
        length: usize,
    },
    #[error("there is no memory {0}: `metaclaw memory list` shows those there are")]
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
