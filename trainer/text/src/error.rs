//! Why a model's text files cannot be used.

use std::path::PathBuf;

/// Why a tokenizer or a chat template cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {file}: {source}", file = file.display())]
    Write {
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is truncated or holds something else than its name says.
    #[error("{file} is damaged or no model file: {detail}", file = file.display())]
    Damaged {
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A file is whole but holds what this program cannot use.
    #[error("{file}: {what} is {value}, allowed: {allowed}", file = file.display())]
    Unsupported {
        file: PathBuf,
        /// Which part of it.
        what: String,
        value: String,
        allowed: String,
    },
    /// The chat template does not compile.
    #[error("{file}: chat template cannot be used: {detail}", file = file.display())]
    Template {
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
}
