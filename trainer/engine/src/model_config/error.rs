//! Why a `config.json` cannot be used.

use std::path::PathBuf;

/// Why a config.json cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no JSON object.
    #[error("{file} is not a JSON object: {detail}", file = file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// Where it breaks.
        detail: String,
    },
    /// A field is missing or has a value that this engine cannot honour.
    #[error("{file}: {field} is {value}, allowed: {allowed}", file = file.display())]
    Field {
        /// The file.
        file: PathBuf,
        /// The field.
        field: String,
        /// What it holds.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}
