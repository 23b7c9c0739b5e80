//! The engine, in the API's terms.
//!
//! Everything that a handler needs of the engine goes through here, and every error of the engine becomes an
//! answer here.

mod convert;
mod failure;
mod job;
mod last_step;
mod runs;
mod text;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use metaclaw_engine::{
    engine::{Dtype, Engine, EngineConfig},
    served::ServedTokenIndex,
};
use metaclaw_trainer_api::{AdapterName, wire::AdapterInfo};

use self::last_step::LastStep;
pub(crate) use self::text::{Conversation, Draw, Event, Generation, Prompt, Sampling};
use crate::error::ApiError;

/// Bytes of served sequences whose ids are remembered by their text.
const REMEMBERED: usize = 32 << 20;

/// What a host is made of.
#[derive(Debug)]
pub(crate) struct HostConfig {
    /// A GGUF file or a Hugging Face directory.
    pub(crate) model: PathBuf,
    /// For converted models.
    pub(crate) cache_dir: PathBuf,
    /// For `adapters/` and `checkpoints/`.
    pub(crate) checkpoint_dir: PathBuf,
    /// What to compute in; `None` is what this processor does fastest.
    pub(crate) dtype: Option<Dtype>,
    /// Compute threads; 0 is one a core.
    pub(crate) n_threads: u16,
    /// Requests for text that may wait.
    pub(crate) n_waiting: u16,
}

/// The engine and what stands beside it.
#[derive(Debug)]
pub(crate) struct Host {
    engine: Engine,
    checkpoint_dir: PathBuf,
    checkpoints: PathBuf,
    served: Arc<ServedTokenIndex>,
    last_step: LastStep,
}

// === impl Host ===

impl Host {
    /// Loads the model; takes seconds, minutes when a GGUF is converted first.
    ///
    /// # Errors
    /// Names the file or setting that cannot be used.
    pub(crate) fn start(config: HostConfig) -> Result<Self> {
        let model = config.model.display().to_string();
        let mut engine = EngineConfig::new(
            config.model,
            config.cache_dir,
            config.checkpoint_dir.clone(),
        );
        engine.dtype = config.dtype;
        engine.threads = usize::from(config.n_threads);
        engine.max_waiting = usize::from(config.n_waiting);
        let engine = Engine::start(engine).with_context(|| format!("--model {model}"))?;
        Ok(Self {
            engine,
            checkpoints: config.checkpoint_dir.join("checkpoints"),
            checkpoint_dir: config.checkpoint_dir,
            served: Arc::new(ServedTokenIndex::new(REMEMBERED)),
            last_step: LastStep::default(),
        })
    }

    /// The base model's name.
    pub(crate) fn base(&self) -> &str {
        &self.engine.info().name
    }

    /// The longest sequence, in tokens.
    pub(crate) fn context(&self) -> usize {
        self.engine.info().context
    }

    /// Where checkpoints are.
    pub(crate) fn checkpoint_folder(&self) -> &Path {
        &self.checkpoints
    }

    /// Tokens that fit after a prompt.
    ///
    /// # Errors
    /// 400 `context_length_exceeded` when there is room for none.
    pub(crate) fn room_after(&self, n_prompt: usize) -> Result<usize, ApiError> {
        match self.context().checked_sub(n_prompt) {
            Some(room @ 1..) => Ok(room),
            Some(0) | None => Err(ApiError::context_length(n_prompt, self.context())),
        }
    }

    /// Whether there is such an adapter on disk.
    pub(crate) fn has_adapter(&self, name: &AdapterName) -> bool {
        is_adapter(&self.adapter_folder().join(name.as_str()))
    }

    /// Every adapter on disk, by name, and whether it is in memory.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) async fn adapters(&self) -> Result<Vec<AdapterInfo>, ApiError> {
        let names = self.adapter_names()?;
        let loaded = self.engine.call_now(|state| state.adapters.names()).await?;
        let adapters = names.into_iter().map(|name| AdapterInfo {
            loaded: loaded.iter().any(|loaded| loaded == name.as_str()),
            name,
        });
        Ok(adapters.collect())
    }

    /// Takes an adapter out of memory once the replies that use it have ended; whether it was there.
    ///
    /// # Errors
    /// When the engine is gone.
    pub(crate) async fn unload(&self, name: AdapterName) -> Result<bool, ApiError> {
        let unload = move |state: &mut metaclaw_engine::engine::EngineState| {
            state.adapters.unload(name.as_str())
        };
        Ok(self.engine.call_now(unload).await?)
    }

    /// Names of the adapters on disk, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn adapter_names(&self) -> Result<Vec<AdapterName>, ApiError> {
        let folder = self.adapter_folder();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let text = format!("{} cannot be read: {error}", folder.display());
                return Err(ApiError::internal(text));
            }
        };
        let mut names: Vec<AdapterName> = entries
            .flatten()
            .filter(|entry| is_adapter(&entry.path()))
            // What is half written has a name that is none.
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn adapter_folder(&self) -> PathBuf {
        self.checkpoint_dir.join("adapters")
    }
}

fn is_adapter(folder: &Path) -> bool {
    folder.join("adapter_config.json").is_file()
}
