//! The engine, with the types of the API.
//!
//! Handlers call the engine only through this module, which turns every error of the engine into an answer.

mod adapters;
mod base;
mod cell;
mod checkpoints;
mod failure;
mod fetcher;
mod runs;
mod store;
mod text;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use metaclaw_engine::device;
use metaclaw_engine::engine::{Dtype, EngineConfig};
use metaclaw_trainer_api::wire::DeviceInfo;
use metaclaw_trainer_chat::Model;

use self::{cell::EngineCell, fetcher::hub_name, store::CheckpointFolder};
pub(crate) use self::{
    fetcher::{Fetcher, from_env as hub_from_env},
    text::Generation,
};
use crate::error::ApiError;
use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct HostConfig {
    /// A GGUF file, a Hugging Face directory, or a name at the hub. If it is missing, the first run names the model.
    pub(crate) model: Option<PathBuf>,
    pub(crate) fetcher: Fetcher,
    /// The engine's settings, whose model is the one above.
    pub(crate) engine: EngineConfig,
    /// The least number of checkpoints of each line of training that a prune keeps.
    pub(crate) n_kept: usize,
}

#[derive(Debug)]
pub(crate) struct Host {
    engine: Arc<EngineCell>,
    fetcher: Fetcher,
    store: CheckpointFolder,
    /// The steps of the last used run, for `/v1/health`; none before there is one.
    last_step: Mutex<Option<u64>>,
}

// === impl Host ===

impl Host {
    /// Loads the model if one is given; this takes seconds, minutes if a GGUF is converted first, and longer if it is
    /// downloaded from the hub.
    ///
    /// # Errors
    /// Returns an error with the file or setting that cannot be used.
    pub(crate) fn start(config: HostConfig) -> Result<Self> {
        let folder = config.engine.checkpoint_dir.clone();
        let engine = EngineCell::new(config.engine);
        if let Some(model) = &config.model {
            let load = || match hub_name(model) {
                Some(name) => {
                    let folder = config.fetcher.fetch_now(&name)?;
                    engine.load(&folder, Some(name.name().to_owned()))
                }
                None => engine.load(model, None),
            };
            load().context("--model")?;
        }
        let host = Self {
            engine: Arc::new(engine),
            fetcher: config.fetcher,
            store: CheckpointFolder::new(folder, config.n_kept),
            last_step: Mutex::default(),
        };
        host.delete_ephemeral()?;
        Ok(host)
    }

    /// Ends the engine, and waits until its tensors are gone. It must not be called by a task.
    pub(crate) fn stop(&self) {
        self.engine.stop();
    }

    /// Returns the base model's name; empty before there is one.
    pub(crate) fn base(&self) -> &str {
        self.engine.info().map_or("", |info| &info.name)
    }

    /// Returns the architecture, for example `llama`; empty before there is a model.
    pub(crate) fn family(&self) -> &'static str {
        self.engine.info().map_or("", |info| info.family)
    }

    /// Waits until there is a model.
    pub(crate) async fn until_loaded(&self) {
        self.engine.until_loaded().await;
    }

    /// Returns the ids that end a reply; none before there is a model.
    pub(crate) fn end_ids(&self) -> Vec<u32> {
        let info = self.engine.info();
        info.map_or_else(Vec::new, |info| info.end_ids.clone())
    }

    pub(crate) fn dtype(&self) -> Option<Dtype> {
        self.engine.info().map(|info| info.dtype)
    }

    /// Returns the model's folder in Hugging Face form; empty before there is one.
    pub(crate) fn model_folder(&self) -> &Path {
        let info = self.engine.info();
        info.map_or_else(|| Path::new(""), |info| &info.dir)
    }

    pub(crate) fn base_fingerprint(&self) -> Option<String> {
        let engine = self.engine.get().ok()?;
        Some(engine.base().id.fingerprint.clone())
    }

    pub(crate) fn devices(&self) -> Vec<DeviceInfo> {
        let (training, inference) = self.engine.devices();
        let mut all: Vec<_> = training.as_slice().to_vec();
        all.extend(inference.as_slice());
        let mut infos: Vec<DeviceInfo> = Vec::new();
        for each in all {
            let name = device::name(each);
            if infos.iter().any(|info| info.name == name) {
                continue;
            }
            let memory = device::memory(each);
            infos.push(DeviceInfo {
                name,
                training: training.as_slice().contains(&each),
                inference: inference.as_slice().contains(&each),
                memory_total: memory.map(|memory| memory.total as u64),
                memory_free: memory.map(|memory| memory.free as u64),
            });
        }
        infos
    }

    pub(crate) fn last_step(&self) -> Option<u64> {
        *self.last_step.lock()
    }

    fn set_last_step(&self, step: u64) {
        *self.last_step.lock() = Some(step);
    }

    /// Returns the text part of the model.
    ///
    /// # Errors
    /// Returns 503 `no_model`.
    pub(crate) fn model(&self) -> Result<Arc<Model>, ApiError> {
        self.engine.model()
    }

    #[cfg(test)]
    pub(crate) fn hold_next_write(&self, closed: store::Closed) {
        self.store.gate.close(closed);
    }
}
