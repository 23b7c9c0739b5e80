//! The input of a run, which `cargo xtask bench engine` writes, and which this program and `bench/peer.py` read.

use std::path::PathBuf;

use metaclaw_engine::device::Devices;
use metaclaw_engine::engine::{Dtype, Engine, EngineConfig};
use metaclaw_engine::matrix::Quantization;
use metaclaw_trainer_terms::{Datum, DatumError};
use serde::Deserialize;

use crate::failure::Failure;

/// A complete input file.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    /// A folder in Hugging Face format.
    pub(crate) model: PathBuf,
    pub(crate) threads: usize,
    /// `bf16` or `f32`.
    pub(crate) dtype: String,
    /// Whether the base model's matrices are quantised to 8 bits.
    #[serde(default)]
    pub(crate) int8: bool,
    /// Devices for both training and serving, as in the trainer's flags. The default is the CPU.
    #[serde(default)]
    pub(crate) devices: Option<String>,
    #[serde(flatten)]
    pub(crate) work: BenchWork,
}

/// The measurement, selected by `kind`.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum BenchWork {
    /// The machine's memory bandwidth.
    Bandwidth,
    /// The speed of the first device in multiplying two matrices of `side` by `side`.
    Peak { side: i64 },
    /// One training step: forward, backward, optimiser.
    Train(Train),
    /// One step towards a teacher's most likely tokens.
    Distil(Distillation),
    /// Greedy replies, all at once.
    Decode(Decode),
    /// The first token of a second turn, with and without the first turn's cache.
    NextTurn(NextTurn),
    /// Replies on one adapter, then on as many adapters as replies, then agents in rotation.
    Adapters(Decode),
    /// Streams with and without training.
    Served(Served),
    /// Prompts that arrive during a stream.
    Arrivals(Arrivals),
    /// Streams during which the adapter changes.
    Swaps(Swaps),
}

/// A sequence and the beginning of its loss.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BenchSample {
    /// The token ids, one more than the model reads.
    pub(crate) ids: Vec<u32>,
    /// The first position whose prediction counts.
    pub(crate) loss_from: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Train {
    pub(crate) samples: Vec<BenchSample>,
    /// Number of tokens to which the first sample is cut for the warm-up. Without it, the warm-up is the whole step.
    pub(crate) warm_tokens: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Distillation {
    pub(crate) samples: Vec<BenchSample>,
    /// For each sample, the hints that the teacher reads between prompt and reply.
    pub(crate) hints: Vec<Vec<Vec<u32>>>,
    /// Number of most likely tokens per position.
    pub(crate) top_k: usize,
    pub(crate) with_teacher: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Decode {
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) new_tokens: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct NextTurn {
    pub(crate) history: Vec<u32>,
    /// A history of the same length with other ids.
    pub(crate) other_history: Vec<u32>,
    pub(crate) turn: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Served {
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Tokens of each stream without training.
    pub(crate) new_tokens: usize,
    /// The samples of the training step.
    pub(crate) samples: Vec<BenchSample>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Arrivals {
    pub(crate) stream: Vec<u32>,
    pub(crate) prompts: Vec<Vec<u32>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Swaps {
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) new_tokens: usize,
    /// Tokens of all streams together between two swaps.
    pub(crate) tokens_a_swap: usize,
    pub(crate) times: usize,
}

// === impl Input ===

impl Input {
    /// # Errors
    /// Fails for a name other than `bf16` and `f32`.
    pub(crate) fn dtype(&self) -> Result<Dtype, Failure> {
        match self.dtype.as_str() {
            "bf16" => Ok(Dtype::Bf16),
            "f32" => Ok(Dtype::F32),
            other => Err(format!("dtype {other:?}: bf16 or f32").into()),
        }
    }

    /// # Errors
    /// Fails for an empty list, or for devices that do not exist.
    pub(crate) fn devices(&self) -> Result<Devices, Failure> {
        let devices = self.devices.as_deref().unwrap_or("cpu");
        let devices: Devices = devices.parse()?;
        devices.check()?;
        Ok(devices)
    }

    /// Returns how the base model's matrices are quantised, if they are.
    pub(crate) fn quantization(&self) -> Option<Quantization> {
        self.int8.then_some(Quantization::Int8)
    }

    /// Starts an engine whose adapters are in `folder`.
    ///
    /// # Errors
    /// Returns the engine's error.
    pub(crate) fn engine(&self, folder: PathBuf, max_streams: usize) -> Result<Engine, Failure> {
        let mut config = EngineConfig::new(self.model.clone(), folder.clone(), folder);
        config.dtype = Some(self.dtype()?);
        config.quantization = self.quantization();
        config.threads = self.threads;
        config.training = self.devices()?;
        config.inference = config.training.clone();
        config.max_streams = max_streams;
        Ok(Engine::start(config)?)
    }
}

// === impl BenchSample ===

impl BenchSample {
    /// Makes a datum with the mean cross-entropy over `n_batch` predictions.
    ///
    /// # Errors
    /// Fails for a sample without a prediction.
    pub(crate) fn datum(&self, n_batch: usize) -> Result<Datum, DatumError> {
        let n = self.ids.len() - 1;
        let weight = 1.0 / n_batch as f32;
        let weights = (0..n).map(|i| if i < self.loss_from { 0.0 } else { weight });
        let (input, targets) = (self.ids[..n].to_vec(), self.ids[1..].to_vec());
        Datum::cross_entropy(input, targets, weights.collect())
    }

    pub(crate) fn n_targets(&self) -> usize {
        self.ids.len() - 1 - self.loss_from
    }

    /// Returns a shorter input: the first `n` tokens of this one. The loss counts each of them.
    pub(crate) fn cut(&self, n: usize) -> Self {
        Self {
            ids: self.ids.iter().copied().take(n + 1).collect(),
            loss_from: 0,
        }
    }
}
