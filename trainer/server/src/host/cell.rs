//! The engine, from the moment there is one: a server may start without a model.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use metaclaw_engine::device::Devices;
use metaclaw_engine::engine::{Engine, EngineConfig, EngineInfo, EngineState, SlicedJob};
use metaclaw_trainer_chat::Model;
use metaclaw_trainer_terms::{ErrorCode, SamplerError, SamplerFailure};
use tokio::sync::{Mutex, SetOnce};

use super::failure::RunError;
use crate::{blocking::blocking, error::ApiError};

const NO_MODEL: &str = "no model is loaded yet: POST /v1/lora/create with a base_model loads one, and so does --model at the start";

#[derive(Debug)]
pub(super) struct EngineCell {
    settings: EngineConfig,
    engine: SetOnce<LoadedEngine>,
    loading: Mutex<()>,
}

#[derive(Debug)]
struct LoadedEngine {
    engine: Engine,
    path: PathBuf,
    model: Arc<Model>,
}

// === impl EngineCell ===

impl EngineCell {
    /// `settings` are those of the engine that there will be; which model they name is no matter.
    pub(super) fn new(settings: EngineConfig) -> Self {
        Self {
            settings,
            engine: SetOnce::new(),
            loading: Mutex::new(()),
        }
    }

    /// Loads a model; takes seconds, minutes when a GGUF is converted first. `name` is what it is called, where
    /// that is not its file's or folder's name.
    ///
    /// # Errors
    /// Names the file or setting that cannot be used.
    pub(super) fn load(&self, model: &Path, name: Option<String>) -> Result<()> {
        let mut settings = self.settings.clone();
        model.clone_into(&mut settings.model);
        settings.name = name;
        let engine = Engine::start(settings).with_context(|| model.display().to_string())?;
        let info = engine.info();
        let text = Model::new(info.name.clone(), info.context, engine.tokenizer())
            .with_fingerprint(engine.base().id.fingerprint.clone());
        // A second load can only happen without the caller's lock.
        let _ = self.engine.set(LoadedEngine {
            engine,
            path: model.to_owned(),
            model: Arc::new(text),
        });
        Ok(())
    }

    /// Loads a model on a blocking thread, unless one is loaded meanwhile.
    ///
    /// # Errors
    /// 400 `base_model`, naming the file or setting that cannot be used.
    pub(super) async fn load_once(
        self: &Arc<Self>,
        model: PathBuf,
        name: Option<String>,
    ) -> Result<(), ApiError> {
        let _one_at_a_time = self.loading.lock().await;
        if self.engine.get().is_some() {
            return Ok(());
        }
        let cell = Arc::clone(self);
        let load = move || {
            let loaded = cell.load(&model, name);
            loaded.map_err(|error| ApiError::field("base_model", format!("base_model {error:#}")))
        };
        blocking("loading", load).await
    }

    /// Ends the engine. A model that is being loaded is loaded first.
    pub(super) fn stop(&self) {
        let _no_more = self.loading.blocking_lock();
        if let Some(loaded) = self.engine.get() {
            loaded.engine.stop();
        }
    }

    pub(super) async fn until_loaded(&self) {
        self.engine.wait().await;
    }

    /// The devices of training, and of replies.
    pub(super) fn devices(&self) -> (&Devices, &Devices) {
        (&self.settings.training, &self.settings.inference)
    }

    fn loaded(&self) -> Result<&LoadedEngine, ApiError> {
        let loaded = self.engine.get();
        loaded.ok_or_else(|| ApiError::unavailable(NO_MODEL).with_code(ErrorCode::NoModel))
    }

    pub(super) fn get(&self) -> Result<&Engine, ApiError> {
        self.loaded().map(|loaded| &loaded.engine)
    }

    pub(super) fn for_samples(&self) -> Result<&Engine, SamplerError> {
        let engine = self.engine.get().map(|loaded| &loaded.engine);
        let none = || SamplerError::new(SamplerFailure::Unavailable, NO_MODEL);
        engine.ok_or_else(|| none().with_code(ErrorCode::NoModel))
    }

    pub(super) fn info(&self) -> Option<&EngineInfo> {
        self.engine.get().map(|loaded| loaded.engine.info())
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.engine.get().map(|loaded| loaded.path.as_path())
    }

    pub(super) fn model(&self) -> Result<Arc<Model>, ApiError> {
        Ok(Arc::clone(&self.loaded()?.model))
    }

    pub(super) async fn call_now<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = self.get()?.call_now(function).await;
        Ok(done.map_err(RunError::from)?)
    }

    pub(super) async fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = self.get()?.call(function).await;
        Ok(done.map_err(RunError::from)?)
    }

    pub(super) fn submit(&self, job: Box<dyn SlicedJob>) -> Result<(), ApiError> {
        let done = self.get()?.submit(job);
        Ok(done.map_err(RunError::from)?)
    }
}
