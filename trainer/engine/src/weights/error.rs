//! Why a model cannot be loaded.

use std::path::PathBuf;

use metaclaw_trainer_text::ModelFileError;
use tch::TchError;

pub(crate) type Result<T, E = LoadError> = std::result::Result<T, E>;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file of the model or of the cache folder is not usable.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// The path is no model.
    #[error("{path} is no model: expected a .gguf file, or a folder with config.json, tokenizer.json and model.safetensors", path = path.display())]
    NoModel { path: PathBuf },
    /// A setting of the engine is out of range.
    #[error("{field} is {value}, allowed: {allowed}")]
    Setting {
        field: &'static str,
        value: String,
        allowed: &'static str,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
    /// The engine's thread could not be started, or ended while loading.
    #[error("the engine thread could not start: {0}")]
    Thread(String),
}
