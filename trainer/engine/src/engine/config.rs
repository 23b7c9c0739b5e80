//! What an engine is started with, and what it says of its model.

use std::path::PathBuf;

use tch::{Kind, TchError};

use crate::precision;

/// What the engine computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// Half the memory and, on CPUs with AVX512-BF16 or AMX, twice the speed.
    Bf16,
    /// Half the memory, finer than bf16 and of smaller range; never taken by itself, since CPUs are slow in it.
    F16,
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
    /// What to compute in; `None` is what this processor does fastest.
    pub dtype: Option<Dtype>,
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

// === impl EngineConfig ===

impl EngineConfig {
    /// Sensible bounds for a model on this machine.
    pub fn new(model: PathBuf, cache_dir: PathBuf, checkpoint_dir: PathBuf) -> Self {
        Self {
            model,
            cache_dir,
            checkpoint_dir,
            dtype: None,
            threads: 0,
            kv_budget: 1 << 30,
            max_adapters: 8,
            max_streams: 16,
            max_waiting: 256,
            max_runs: 8,
        }
    }
}

// === impl Dtype ===

impl Dtype {
    /// What this processor does fastest: 50 ms of trying.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn fastest() -> Result<Self, TchError> {
        Ok(match precision::fastest()? {
            Kind::Float => Self::F32,
            _ => Self::Bf16,
        })
    }

    /// As libtorch calls it.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Bf16 => Kind::BFloat16,
            Self::F16 => Kind::Half,
            Self::F32 => Kind::Float,
        }
    }
}
