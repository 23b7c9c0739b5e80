//! The engine: one named thread that owns all tensors and runs both trades, serving and training.
//!
//! A handle is a sender of a bounded channel. The thread runs one step of every live reply in turn;
//! while a training job is under way, slices of it go between the steps (see `schedule.rs`). What
//! panics in libtorch's bindings ends one request or one job, never the thread.

mod adapters;
mod core;
mod schedule;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;

use tch::Kind;
use tokio::sync::oneshot;

pub use self::adapters::{AdapterCache, ServedAdapter};
use self::core::{Command, Core, Waiting};
pub use self::state::{EngineState, Job, Progress};
use crate::generate::{GenerateError, GenerateRequest, GenerationStream};
use crate::tokenizer::ChatTokenizer;
use crate::weights::LoadError;

/// What the engine computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dtype {
    /// Half the memory and, on CPUs with AVX512-BF16 or AMX, twice the speed.
    #[default]
    Bf16,
    /// For comparing and for CPUs without bf16 instructions.
    F32,
}

/// Settings of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// A `.gguf` file, or a Hugging Face folder.
    pub model: PathBuf,
    /// Where a GGUF is unpacked to, once.
    pub cache_dir: PathBuf,
    /// Holds `adapters/` and `checkpoints/`.
    pub checkpoint_dir: PathBuf,
    /// What to compute in.
    pub dtype: Dtype,
    /// Threads of libtorch; 0 is one a core.
    pub threads: usize,
    /// Bytes for keys and values, live and kept; at least what one context needs is sensible.
    pub kv_budget: usize,
    /// Adapters kept loaded.
    pub max_adapters: usize,
    /// Replies that are generated at once.
    pub max_streams: usize,
    /// Requests that may wait; one more is refused.
    pub max_waiting: usize,
    /// Training runs that are open at once; one more closes the least recently used.
    pub max_runs: usize,
}

/// What an engine serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// The file's or folder's name.
    pub name: String,
    /// The architecture: `llama`, `mistral`, `qwen2`, `qwen3`.
    pub family: &'static str,
    /// Longest sequence, tokens.
    pub context: usize,
    /// Token ids are below this.
    pub vocab: usize,
    /// Weights of the base.
    pub n_params: u64,
    /// The base by content; adapters record it.
    pub sha: String,
    /// Ids that end a reply.
    pub end_ids: Vec<u32>,
    /// What it computes in.
    pub dtype: Dtype,
    /// The Hugging Face folder that is mapped.
    pub dir: PathBuf,
}

/// Why the engine did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Too much is queued.
    #[error("the engine is busy: {queued} commands are queued already, try again later")]
    Busy {
        /// How many.
        queued: usize,
    },
    /// A defect of the engine, said in its log; the engine goes on.
    #[error("the engine failed at this job; its log says where")]
    Failed,
    /// The engine is gone.
    #[error("the engine has stopped")]
    Stopped,
}

/// Commands on their way to the thread.
const QUEUE: usize = 256;

/// A running engine; clones share it, and it stops when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Engine {
    commands: SyncSender<Command>,
    info: Arc<ModelInfo>,
    tokenizer: Arc<ChatTokenizer>,
}

// === impl EngineConfig ===

impl EngineConfig {
    /// Sensible bounds for a model on this machine.
    pub fn new(model: PathBuf, cache_dir: PathBuf, checkpoint_dir: PathBuf) -> Self {
        Self {
            model,
            cache_dir,
            checkpoint_dir,
            dtype: Dtype::default(),
            threads: 0,
            kv_budget: 1 << 30,
            max_adapters: 8,
            max_streams: 16,
            max_waiting: 256,
            max_runs: 8,
        }
    }
}

impl Dtype {
    /// As libtorch calls it.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Bf16 => Kind::BFloat16,
            Self::F32 => Kind::Float,
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Loads the model and starts the thread; blocks meanwhile.
    ///
    /// # Errors
    /// [`LoadError`] naming the file or the setting that cannot be used.
    pub fn start(config: EngineConfig) -> Result<Self, LoadError> {
        let (commands, received) = sync_channel(QUEUE);
        let (loaded, outcome) = sync_channel(1);
        thread::Builder::new()
            .name("engine".into())
            .spawn(move || match Core::load(&config) {
                Ok((core, info)) => {
                    let tokenizer = core.tokenizer();
                    // Whoever asked has gone if this fails, and with it every sender of commands.
                    if loaded.send(Ok((info, tokenizer))).is_ok() {
                        core.run(&received);
                    }
                }
                Err(error) => {
                    let _ = loaded.send(Err(error));
                }
            })
            .map_err(|error| LoadError::Thread(error.to_string()))?;
        let ended =
            |_| LoadError::Thread("it ended while loading; its panic message says why".into());
        let (info, tokenizer) = outcome.recv().map_err(ended)??;
        Ok(Self {
            commands,
            info: Arc::new(info),
            tokenizer,
        })
    }

    /// What is served.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The model's tokenizer and chat template.
    pub fn tokenizer(&self) -> Arc<ChatTokenizer> {
        Arc::clone(&self.tokenizer)
    }

    /// Begins a reply; returns once it has its place among the live ones.
    ///
    /// # Errors
    /// [`GenerateError`]: a request that cannot be served, an adapter that cannot be loaded, or an engine that is busy.
    ///
    /// # Cancel safety
    /// Dropping the future takes the request back.
    pub async fn generate(
        &self,
        request: GenerateRequest,
    ) -> Result<GenerationStream, GenerateError> {
        request.check(self.info.vocab, self.info.context)?;
        let (reply, answer) = oneshot::channel();
        self.send(Command::Generate(Waiting { request, reply }))
            .map_err(|error| match error {
                EngineError::Busy { queued } => GenerateError::Busy { waiting: queued },
                EngineError::Failed | EngineError::Stopped => GenerateError::Stopped,
            })?;
        answer.await.unwrap_or(Err(GenerateError::Stopped))
    }

    /// Runs a short function on the engine's thread, before anything that is queued there.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn call_now<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Now(Box::new(move |state| {
            // A caller that left needs no answer.
            let _ = reply.send(function(state));
        })))?;
        answer.await.map_err(|_| EngineError::Failed)
    }

    /// Runs a short function on the engine's thread after the jobs that were submitted before it.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut EngineState) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.submit(Box::new(state::Call::new(
            move |state: &mut EngineState| {
                let _ = reply.send(function(state));
            },
        )))?;
        answer.await.map_err(|_| EngineError::Failed)
    }

    /// Queues a job; jobs run one after the other, in slices between the steps of live replies.
    /// A job answers through a channel of its own; that channel closes when the job fails.
    ///
    /// # Errors
    /// [`EngineError::Busy`] and [`EngineError::Stopped`].
    pub fn submit(&self, job: Box<dyn Job>) -> Result<(), EngineError> {
        self.send(Command::Job(job))
    }

    fn send(&self, command: Command) -> Result<(), EngineError> {
        self.commands
            .try_send(command)
            .map_err(|error| match error {
                TrySendError::Full(_) => EngineError::Busy { queued: QUEUE },
                TrySendError::Disconnected(_) => EngineError::Stopped,
            })
    }
}
