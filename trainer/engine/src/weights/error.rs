//! Why a model cannot be loaded.

use std::path::PathBuf;

use tch::TchError;

use crate::model_config::ModelConfigError;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// config.json is not usable.
    #[error(transparent)]
    ModelConfig(#[from] ModelConfigError),
    /// The tokenizer or the chat template is not usable.
    #[error(transparent)]
    Text(#[from] metaclaw_trainer_text::TextLoadError),
    /// A file of the model cannot be read.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file cannot be written (cache folder).
    #[error("cannot write {file}: {source}", file = file.display())]
    Write {
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The path is no model.
    #[error("{path} is no model: expected a .gguf file, or a folder with config.json, tokenizer.json and model.safetensors", path = path.display())]
    NoModel { path: PathBuf },
    /// A file is truncated, or its content does not fit its name.
    #[error("{file} is damaged or no model file: {detail}", file = file.display())]
    Damaged {
        file: PathBuf,
        /// What is wrong with the file.
        detail: String,
    },
    /// A file is whole but holds what this engine cannot use.
    #[error("{file}: {what} is {value}, allowed: {allowed}", file = file.display())]
    Unsupported {
        file: PathBuf,
        /// Field, tensor or type.
        what: String,
        value: String,
        allowed: String,
    },
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
