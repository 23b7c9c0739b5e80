//! Why an adapter cannot be saved or loaded.

use std::path::PathBuf;

use metaclaw_trainer_terms::{AdapterName, CheckpointName};
use tch::TchError;

use crate::lora::LoraError;
use crate::tensors::FileError;

/// Why an adapter cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// Nothing under that name.
    #[error("there is no adapter \"{name}\" in {folder}", folder = folder.display())]
    Unknown {
        /// What was asked for.
        name: AdapterName,
        folder: PathBuf,
    },
    /// Nothing under that name.
    #[error("there is no checkpoint \"{name}\" in {folder}", folder = folder.display())]
    NoCheckpoint {
        /// What was asked for.
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
    /// What a file holds is not what was written with it.
    #[error(
        "{folder} is damaged: its content has the SHA-256 {found}, {wanted} was saved", folder = folder.display()
    )]
    Content {
        folder: PathBuf,
        /// Of what it holds.
        found: String,
        /// Of what was saved.
        wanted: String,
    },
    /// It was replaced again and again while it was read.
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
        /// What adapters may take together.
        limit: usize,
    },
    /// The thread that read it ended early.
    #[error("adapter \"{name}\" was not read: {detail}")]
    Interrupted { name: AdapterName, detail: String },
    /// Tensors that do not fit.
    #[error("{file}: {source}", file = file.display())]
    Tensors {
        file: PathBuf,
        /// What does not fit.
        source: LoraError,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}
