//! Why a model's text files cannot be used.

use std::path::PathBuf;

/// Why a tokenizer or a chat template cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TextLoadError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {file}: {source}", file = file.display())]
    Write {
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is truncated, or its content does not match its name.
    #[error("{file} is damaged or no model file: {detail}", file = file.display())]
    Damaged {
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A file is valid, but contains something that this program does not support.
    #[error("{file}: {what} is {value}, allowed: {allowed}", file = file.display())]
    Unsupported {
        file: PathBuf,
        /// The unsupported part.
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
