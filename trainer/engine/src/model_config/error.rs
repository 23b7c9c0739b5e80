//! Why a `config.json` cannot be used.

use std::path::PathBuf;

/// Why a config.json cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no JSON object.
    #[error("{file} is not a JSON object: {detail}", file = file.display())]
    Json { file: PathBuf, detail: String },
    /// A field is missing or has a value that this engine cannot honour.
    #[error("{file}: {field} is {value}, allowed: {allowed}", file = file.display())]
    Field {
        file: PathBuf,
        field: String,
        value: String,
        allowed: String,
    },
}
