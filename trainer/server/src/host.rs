//! The engine, in the API's terms.
//!
//! Everything that a handler needs of the engine goes through here, and every error of the engine becomes an
//! answer here.

mod adapters;
mod checkpoints;
mod convert;
mod failure;
mod job;
mod last_step;
mod retention;
mod runs;
mod store;
mod text;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use metaclaw_engine::{
    engine::{Dtype, Engine, EngineConfig},
    memory::SequenceMemory,
};

pub(crate) use self::text::{Conversation, Draw, Event, Generation, Prompt, Sampling};
use self::{last_step::LastStep, store::Store};
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
    /// bf16, or else f32.
    pub(crate) bf16: bool,
    /// Compute threads; 0 is one a physical core.
    pub(crate) n_threads: u16,
    /// Bytes for keys and values; `None` leaves it to the engine.
    pub(crate) kv_budget: Option<usize>,
    /// Requests for text that may wait.
    pub(crate) n_waiting: u16,
    /// Checkpoints of each line that a prune leaves at least.
    pub(crate) n_kept: usize,
}

/// The engine and what stands beside it.
#[derive(Debug)]
pub(crate) struct Host {
    engine: Engine,
    store: Store,
    memory: Arc<SequenceMemory>,
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
        engine.dtype = if config.bf16 { Dtype::Bf16 } else { Dtype::F32 };
        engine.threads = usize::from(config.n_threads);
        engine.kv_budget = config.kv_budget;
        engine.max_waiting = usize::from(config.n_waiting);
        let engine = Engine::start(engine).with_context(|| format!("--model {model}"))?;
        Ok(Self {
            engine,
            store: Store::new(config.checkpoint_dir, config.n_kept),
            memory: Arc::new(SequenceMemory::new(REMEMBERED)),
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

    /// Makes the next work on the disk say when it begins, and wait.
    #[cfg(test)]
    pub(crate) fn hold_next_write(&self, closed: store::Closed) {
        self.store.gate.close(closed);
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
}
