//! Why an adapter cannot be saved or loaded.

use std::path::PathBuf;

use metaclaw_trainer_terms::{AdapterName, CheckpointName};
use tch::TchError;

use crate::lora::LoraError;
use crate::tensors::FileError;

/// Why an adapter cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// No adapter has this name.
    #[error("there is no adapter \"{name}\" in {folder}", folder = folder.display())]
    Unknown {
        /// The requested name.
        name: AdapterName,
        folder: PathBuf,
    },
    /// No checkpoint has this name.
    #[error("there is no checkpoint \"{name}\" in {folder}", folder = folder.display())]
    NoCheckpoint {
        /// The requested name.
        name: CheckpointName,
        folder: PathBuf,
    },
    /// A file cannot be read or written, or is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// A setting that this engine cannot honour.
    #[error("{file}: {field} is {value}, allowed: {allowed}", file = file.display())]
    Field {
        file: PathBuf,
        field: &'static str,
        value: String,
        allowed: &'static str,
    },
    /// The adapter of another model.
    #[error("{folder} is an adapter of {theirs}, this engine serves {ours}", folder = folder.display())]
    Base {
        folder: PathBuf,
        theirs: String,
        ours: String,
    },
    /// A file's content differs from what was written.
    #[error(
        "{folder} is damaged: its content has the SHA-256 {found}, {wanted} was saved", folder = folder.display()
    )]
    Content {
        folder: PathBuf,
        /// The fingerprint of the content found.
        found: String,
        /// The fingerprint of the content that was saved.
        wanted: String,
    },
    /// Other processes replaced the folder each time it was read.
    #[error("{folder} changed while it was read: try again", folder = folder.display())]
    Changing { folder: PathBuf },
    /// Other adapters are in use and leave no room for it.
    #[error(
        "adapter \"{name}\" takes {needed} bytes of memory, adapters in use leave {free} of {limit}: try again when their replies have ended"
    )]
    Memory {
        name: AdapterName,
        needed: usize,
        free: usize,
        /// Memory that all adapters may take together.
        limit: usize,
    },
    /// The thread that read it ended early.
    #[error("adapter \"{name}\" was not read: {detail}")]
    Interrupted { name: AdapterName, detail: String },
    /// Tensors that do not fit.
    #[error("{file}: {source}", file = file.display())]
    Tensors {
        file: PathBuf,
        /// The shape that does not fit.
        source: LoraError,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}
