//! The engine, from the moment there is one: a server may start without a model.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use anyhow::{Context as _, Result};
use metaclaw_engine::{
    engine::{Engine, EngineConfig, EngineState, Job, ModelInfo},
    generate::{GenerateRequest, GenerationStream},
};
use metaclaw_trainer_text::tokenizer::ChatTokenizer;
use tokio::sync::Mutex;

use crate::error::ApiError;

/// An engine, or the settings of one.
#[derive(Debug)]
pub(super) struct EngineCell {
    settings: EngineConfig,
    engine: OnceLock<Loaded>,
    loading: Mutex<()>,
}

#[derive(Debug)]
struct Loaded {
    engine: Engine,
    /// Where the model was asked for.
    path: PathBuf,
    /// Bytes of the longest token.
    longest: usize,
}

// === impl EngineCell ===

impl EngineCell {
    /// `settings` are those of the engine that there will be; which model they name is no matter.
    pub(super) fn new(settings: EngineConfig) -> Self {
        Self {
            settings,
            engine: OnceLock::new(),
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
        let tokenizer = engine.tokenizer();
        let lengths = (0..engine.info().vocab).map(|id| {
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            tokenizer.token_bytes(id).len()
        });
        let longest = lengths.max().unwrap_or(1).max(1);
        // Loaded twice only where two threads asked at once, which the caller's lock prevents.
        let _ = self.engine.set(Loaded {
            engine,
            path: model.to_owned(),
            longest,
        });
        Ok(())
    }

    /// Loads a model on a thread that may take its time, unless there is one meanwhile.
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
        let load = move || cell.load(&model, name);
        let done = tokio::task::spawn_blocking(load).await;
        let done = done.map_err(|error| ApiError::internal(format!("loading failed: {error}")))?;
        done.map_err(|error| ApiError::field("base_model", format!("base_model {error:#}")))
    }

    fn loaded(&self) -> Result<&Loaded, ApiError> {
        self.engine.get().ok_or_else(|| {
            let text = "no model is loaded yet: POST /v1/lora/create with a base_model loads one, and so does --model at the start";
            ApiError::unavailable(text).with_code("no_model")
        })
    }

    pub(super) fn get(&self) -> Result<&Engine, ApiError> {
        self.loaded().map(|loaded| &loaded.engine)
    }

    /// What is served, if anything is.
    pub(super) fn info(&self) -> Option<&ModelInfo> {
        self.engine.get().map(|loaded| loaded.engine.info())
    }

    /// Where the model was asked for.
    pub(super) fn path(&self) -> Option<&Path> {
        self.engine.get().map(|loaded| loaded.path.as_path())
    }

    /// No text of more bytes can be within the context.
    pub(super) fn longest_text(&self) -> Result<usize, ApiError> {
        let loaded = self.loaded()?;
        Ok(loaded.engine.info().context.saturating_mul(loaded.longest))
    }

    pub(super) fn tokenizer(&self) -> Result<Arc<ChatTokenizer>, ApiError> {
        Ok(self.get()?.tokenizer())
    }

    pub(super) async fn generate(
        &self,
        request: GenerateRequest,
    ) -> Result<GenerationStream, ApiError> {
        Ok(self.get()?.generate(request).await?)
    }

    pub(super) async fn call_now<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        Ok(self.get()?.call_now(function).await?)
    }

    pub(super) async fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        Ok(self.get()?.call(function).await?)
    }

    pub(super) fn submit(&self, job: Box<dyn Job>) -> Result<(), ApiError> {
        Ok(self.get()?.submit(job)?)
    }
}
