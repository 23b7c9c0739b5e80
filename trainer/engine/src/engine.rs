//! The engine: one named thread that owns all tensors and does both serving and training.
//!
//! A handle sends to a bounded channel. The thread runs rounds (`serving.rs`): the next token of every running reply
//! and portions of new prompts (`scheduler.rs`) are one batch of rows, with one pass over the weights and one sampling.
//! During a training job, slices of it run between the rounds (`time_share.rs`). A panic in libtorch's bindings ends
//! one request or one job, never the thread.

mod adapters;
mod config;
mod core;
mod memory;
mod number_format;
mod scheduler;
mod score;
mod serving;
mod state;
mod step;
mod stream;
#[cfg(test)]
mod tests;
mod threads;
mod time_share;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::{TrySendError, sync_channel};

use metaclaw_trainer_terms::AdapterName;
use tokio::sync::oneshot;

use self::adapters::refusal;
pub use self::adapters::{AdapterLease, AdapterPool, ServedAdapter};
pub use self::config::{Dtype, EngineConfig, EngineInfo};
use self::core::{Command, Core};
use self::serving::Waiting;
pub use self::state::{EngineState, JobProgress, SlicedJob};
use self::worker::{EngineThread, QUEUE};
use crate::adapter::{AdapterError, BaseSpec};
use crate::generate::{GenerateError, GenerateRequest, GenerationStream};
use crate::weights::LoadError;
use metaclaw_trainer_text::tokenizer::ChatTokenizer;

/// Why the engine did not execute a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The queue is full.
    #[error("the engine is busy: {queued} commands are queued already, try again later")]
    Busy { queued: usize },
    /// The engine has a defect, which its log describes. The engine continues.
    #[error("the engine failed at this job; its log says where")]
    Failed,
    /// The engine is gone.
    #[error("the engine has stopped")]
    Stopped,
}

/// A running engine. Clones share it, and it stops when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Engine {
    thread: Arc<EngineThread>,
    info: Arc<EngineInfo>,
    tokenizer: Arc<ChatTokenizer>,
    base: Arc<BaseSpec>,
    adapters: AdapterPool,
}

// === impl Engine ===

impl Engine {
    /// Loads the model and starts the thread. It blocks until this is done.
    ///
    /// # Errors
    /// Returns [`LoadError`], which names the unusable file or setting.
    pub fn start(config: EngineConfig) -> Result<Self, LoadError> {
        let (loaded, outcome) = sync_channel(1);
        let thread = EngineThread::spawn(move |commands, is_ending| match Core::load(&config) {
            Ok((core, info)) => {
                let state = core.state();
                let shared = (Arc::clone(&state.base), state.adapters.clone());
                let ready = (info, core.tokenizer(), shared);
                // If this fails, the caller is gone, and nobody can send a command.
                if loaded.send(Ok(ready)).is_ok() {
                    core.run(commands, is_ending);
                }
            }
            Err(error) => {
                let _ = loaded.send(Err(error));
            }
        });
        let thread = thread.map_err(|error| LoadError::Thread(error.to_string()))?;
        let ended =
            |_| LoadError::Thread("it ended while loading; its panic message says why".into());
        let (info, tokenizer, (base, adapters)) = outcome.recv().map_err(ended)??;
        Ok(Self {
            thread: Arc::new(thread),
            info: Arc::new(info),
            tokenizer,
            base,
            adapters,
        })
    }

    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Returns the model's tokenizer and chat template.
    pub fn tokenizer(&self) -> Arc<ChatTokenizer> {
        Arc::clone(&self.tokenizer)
    }

    /// Returns the properties that an adapter or a checkpoint must match.
    pub fn base(&self) -> &Arc<BaseSpec> {
        &self.base
    }

    /// Returns the adapters that are loaded for serving.
    pub fn adapters(&self) -> &AdapterPool {
        &self.adapters
    }

    /// Loads an adapter on a separate thread, unless it is loaded. Replies continue in the meantime.
    ///
    /// # Errors
    /// Fails like [`AdapterPool::load`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the loading is finished, and later callers find the adapter.
    pub async fn load_adapter(&self, name: &AdapterName) -> Result<AdapterLease, AdapterError> {
        if let Some(ready) = self.adapters.ready(name) {
            return Ok(ready);
        }
        let (adapters, wanted) = (self.adapters.clone(), name.clone());
        let read = tokio::task::spawn_blocking(move || adapters.load(&wanted)).await;
        read.map_err(|error| AdapterError::Interrupted {
            name: name.clone(),
            detail: error.to_string(),
        })?
    }

    /// Begins a reply. Returns once it has its place among the running ones. Its adapter is loaded first.
    ///
    /// # Errors
    /// Returns [`GenerateError`]: the request cannot be served, the adapter cannot be loaded, or the engine is busy.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn generate(
        &self,
        request: GenerateRequest,
    ) -> Result<GenerationStream, GenerateError> {
        request.check(self.info.vocab, self.info.context)?;
        // This lease is held until the reply has its own, because a waiting request must not lose its adapter.
        let _lease = match &request.adapter {
            Some(name) => {
                let lease = self.load_adapter(name).await;
                Some(lease.map_err(|error| refusal(name, &error))?)
            }
            None => None,
        };
        let (reply, answer) = oneshot::channel();
        self.send(Command::Generate(Waiting { request, reply }))
            .map_err(|error| match error {
                EngineError::Busy { queued } => GenerateError::Busy { waiting: queued },
                EngineError::Failed | EngineError::Stopped => GenerateError::Stopped,
            })?;
        answer.await.unwrap_or(Err(GenerateError::Stopped))
    }

    /// Runs a short function on the engine's thread, before anything in the queue.
    ///
    /// # Errors
    /// Returns [`EngineError`] if the engine is busy or gone.
    pub async fn call_now<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Now(Box::new(move |state| {
            // The caller may be gone.
            let _ = reply.send(function(state));
        })))?;
        answer.await.map_err(|_| EngineError::Failed)
    }

    /// Runs a short function on the engine's thread after the jobs that were submitted before it.
    ///
    /// # Errors
    /// Returns [`EngineError`] if the engine is busy or gone.
    pub async fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Box::new(Some(move |state: &mut EngineState| {
            let _ = reply.send(function(state));
        })))?;
        answer.await.map_err(|_| EngineError::Failed)
    }

    /// Queues a job. Jobs run one after the other, in slices between the steps of running replies. A job answers
    /// through its own channel, which closes if the job fails.
    ///
    /// # Errors
    /// Returns [`EngineError::Busy`] or [`EngineError::Stopped`].
    pub fn submit(&self, job: Box<dyn SlicedJob>) -> Result<(), EngineError> {
        self.send(Command::Job(job))
    }

    /// Ends the engine, and waits until its tensors are gone, except for adapters that others hold. What is under way or
    /// queued is dropped after the present slice of work; later calls return [`EngineError::Stopped`].
    pub fn stop(&self) {
        self.thread.end();
        self.adapters.clear();
    }

    fn send(&self, command: Command) -> Result<(), EngineError> {
        self.thread.send(command).map_err(|error| match error {
            TrySendError::Full(()) => EngineError::Busy { queued: QUEUE },
            TrySendError::Disconnected(()) => EngineError::Stopped,
        })
    }
}
