//! Why an adapter cannot be saved or loaded.

use std::path::PathBuf;

use tch::TchError;

use crate::folder::NameError;
use crate::lora::LoraError;
use crate::tensors::FileError;

/// Why an adapter cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The name is no folder's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Nothing under that name.
    #[error("there is no adapter {name:?} in {folder}", folder = folder.display())]
    Unknown {
        /// What was asked for.
        name: String,
        /// Where.
        folder: PathBuf,
    },
    /// Nothing under that name.
    #[error("there is no checkpoint {name:?} in {folder}", folder = folder.display())]
    NoCheckpoint {
        /// What was asked for.
        name: String,
        /// Where.
        folder: PathBuf,
    },
    /// A file cannot be read or written, or is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// A setting that this engine cannot honour.
    #[error("{file}: {field} is {value}, allowed: {allowed}", file = file.display())]
    Field {
        /// The file.
        file: PathBuf,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The adapter of another model.
    #[error("{folder} is an adapter of {theirs}, this engine serves {ours}", folder = folder.display())]
    Base {
        /// The adapter.
        folder: PathBuf,
        /// Its base.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// Tensors that do not fit.
    #[error("{file}: {source}", file = file.display())]
    Tensors {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        source: LoraError,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}
