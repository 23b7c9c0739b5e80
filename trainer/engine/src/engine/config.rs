//! The engine's settings, and its description of the model.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tch::Kind;

use crate::device::Devices;
use crate::matrix::Quantization;
use crate::precision;
use crate::runs::RunLimit;
use crate::torch::Result;
use crate::weights::LoadError;

/// The number format of the engine's computations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// Half the memory and, on CPUs with AVX512-BF16 or AMX, twice the speed.
    Bf16,
    /// Half the memory of f32, finer than bf16 and of smaller range. The engine never chooses it by itself, because
    /// CPUs are slow in it.
    F16,
    /// For comparisons, and for CPUs without bf16 instructions.
    F32,
}

/// Settings of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// A `.gguf` file, or a Hugging Face folder.
    pub model: PathBuf,
    /// The model's name. `None` takes the name of its file or folder, which in a hub's cache is a revision.
    pub name: Option<String>,
    /// The folder where a GGUF file is unpacked, once.
    pub cache_dir: PathBuf,
    /// Holds `adapters/` and `checkpoints/`.
    pub checkpoint_dir: PathBuf,
    /// The number format; `None` chooses one for the model and these devices, once.
    pub dtype: Option<Dtype>,
    /// How the base's matrices are rounded; `None` leaves them as they are. Training goes through the rounded ones.
    pub quantization: Option<Quantization>,
    /// The devices of training. Several share the layers in order.
    pub training: Devices,
    /// The devices of replies. If they differ from those of training, they have a copy of the base.
    pub inference: Devices,
    /// Threads of libtorch; 0 is one a physical core.
    pub threads: usize,
    /// Bytes for keys and values, live and kept, which are never passed; `None` is half of `memory`, at most two
    /// contexts (or 1 GiB).
    pub kv_budget: Option<usize>,
    /// Bytes beside the weights, on all devices together: for keys and values, and the rest for the activations of training. `None` takes
    /// the memory that is free when the model is loaded; on a CPU, a training job takes half of what is free when it begins.
    pub memory: Option<usize>,
    /// Bytes of the adapters that are loaded for serving, those in use among them.
    pub adapter_budget: usize,
    /// The number of replies that are generated at the same time.
    pub max_streams: usize,
    /// Requests that may wait; one more is refused.
    pub max_waiting: usize,
    /// The number of training runs that are open at the same time. One more closes the least recently used.
    pub run_limit: RunLimit,
}

/// The model that an engine serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// The file's or folder's name.
    pub name: String,
    /// The architecture: `llama`, `mistral`, `qwen2`, `qwen3`, `qwen3_5_text`, `gemma3_text`.
    pub family: &'static str,
    pub context: usize,
    /// Token ids are below this.
    pub vocab: usize,
    /// Weights of the base.
    pub n_params: u64,
    /// The base by content; adapters record it.
    pub sha: String,
    /// Ids that end a reply.
    pub end_ids: Vec<u32>,
    /// The number format of the computations.
    pub dtype: Dtype,
    /// The devices of training.
    pub training: Devices,
    /// The devices of replies.
    pub inference: Devices,
    /// Positions of all sequences together that keys and values have room for.
    pub kv_positions: usize,
    /// The Hugging Face folder that is mapped.
    pub dir: PathBuf,
}

// === impl EngineConfig ===

impl EngineConfig {
    /// # Errors
    /// [`LoadError::Setting`] where settings do not go together.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        if self.quantization == Some(Quantization::Int8) && !self.inference.gpus().is_empty() {
            return Err(LoadError::Setting {
                field: "quantization",
                value: format!("int8 with replies on {}", self.inference),
                allowed: "none, because a GPU multiplies 8-bit weights eleven times slower than bf16; or replies on cpu (--inference-devices cpu)",
            });
        }
        Ok(())
    }

    /// Sensible bounds for a model on this machine.
    pub fn new(model: PathBuf, cache_dir: PathBuf, checkpoint_dir: PathBuf) -> Self {
        Self {
            model,
            name: None,
            cache_dir,
            checkpoint_dir,
            dtype: None,
            quantization: None,
            training: Devices::cpu(),
            inference: Devices::cpu(),
            threads: 0,
            kv_budget: None,
            memory: None,
            // 8 adapters of rank 32 of a 4B model, or 54 of the demo's.
            adapter_budget: 2 << 30,
            max_streams: 16,
            max_waiting: 256,
            run_limit: RunLimit {
                runs: 8,
                bytes: 4 << 30,
            },
        }
    }
}

// === impl Dtype ===

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

impl Dtype {
    /// bf16 on GPUs, where nothing is tried. If a CPU computes as well, both formats are timed, and bf16 has to be clearly
    /// faster than f32.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn fastest(devices: &Devices) -> Result<Self> {
        if devices.as_slice().iter().all(|device| device.is_cuda()) {
            return Ok(Self::Bf16);
        }
        Ok(match precision::fastest()? {
            Kind::Float => Self::F32,
            _ => Self::Bf16,
        })
    }

    /// The same format as libtorch's kind.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Bf16 => Kind::BFloat16,
            Self::F16 => Kind::Half,
            Self::F32 => Kind::Float,
        }
    }
}
