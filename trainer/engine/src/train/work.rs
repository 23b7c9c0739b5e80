//! What a job works on, and what it gives.

use std::time::Duration;

use tch::{TchError, Tensor};

use crate::datum::{DatumError, Sample};
use crate::head::TopK;
use crate::lora::{LayerLora, Lora};
use crate::loss::Loss;
use crate::pack::to_i64;

/// How much one slice computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceSizes {
    /// Positions in a row, unless a single sample is longer; and in a chunk of a longer row.
    pub row_tokens: usize,
    /// Positions that go through the unembedding at once.
    pub head_positions: usize,
}

/// Why a job stopped. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A datum is wrong.
    #[error(transparent)]
    Datum(#[from] DatumError),
    /// More tokens asked for than there are.
    #[error("top_k is {found}, allowed are 0 to {max}, the vocabulary")]
    TopK {
        /// What was given.
        found: usize,
        /// The vocabulary.
        max: usize,
    },
    /// The adapter is of another model.
    #[error("the adapter has {found} layers, the model has {wanted}")]
    Layers {
        /// The adapter's.
        found: usize,
        /// The model's.
        wanted: usize,
    },
    /// A loss that is infinite or no number; its gradient would ruin the adapter.
    #[error(
        "the {loss} loss of datums[{datum}] at position {position} is not finite: log-probability {logprob} now, {sampled} when sampled"
    )]
    NotFinite {
        /// The loss.
        loss: &'static str,
        /// Which datum.
        datum: usize,
        /// Which position.
        position: usize,
        /// Now.
        logprob: f32,
        /// As given.
        sampled: f32,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// What a finished job found.
#[derive(Debug)]
pub struct TrainOut {
    /// The sum over all positions; 0 for a forward job.
    pub loss: f64,
    /// Targets that had a loss; all targets for a forward job.
    pub n_targets: usize,
    /// Tokens that were computed.
    pub n_tokens: usize,
    /// Log-probability of each target, one list a datum in its `[N, K]` shape; 0 where there was no loss
    /// and hence nothing was computed.
    pub logprobs: Vec<Vec<f32>>,
    /// The likeliest tokens of every position, one a datum; empty unless asked for.
    pub top: Vec<TopK>,
    /// One f32 tensor a parameter in [`Lora::params`]' order; empty for a forward job.
    pub gradients: Vec<Tensor>,
    /// How the work was cut.
    pub slices: Slices,
}

/// How a job was cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slices {
    /// How many there were.
    pub count: usize,
    /// The longest one, which is the longest that a chat had to wait.
    pub longest: Duration,
    /// All together, waiting not counted.
    pub total: Duration,
}

/// What is to be computed, unchanging.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) samples: Vec<Sample>,
    pub(super) loss: Option<Loss>,
    pub(super) top_k: usize,
    pub(super) lora: Option<Lora>,
    pub(super) sizes: SliceSizes,
}

// === impl SliceSizes ===

impl Default for SliceSizes {
    /// For a small model on a few CPU cores: around 10 ms a slice.
    fn default() -> Self {
        Self {
            row_tokens: 128,
            head_positions: 32,
        }
    }
}

impl SliceSizes {
    /// Start and length of the chunk from `next` on, of `t` positions.
    pub(super) fn chunk(self, next: i64, t: i64) -> (i64, i64) {
        (next, to_i64(self.row_tokens.max(1)).min(t - next))
    }
}

// === impl Work ===

impl Work {
    /// The adapters of a layer, if any are on.
    pub(super) fn adapter(&self, layer: usize) -> Option<&LayerLora> {
        self.lora.as_ref()?.layer(layer)
    }

    pub(super) fn empty_out(&self) -> Result<TrainOut, TchError> {
        let zeros = |sample: &Sample| vec![0.0; sample.target_ids.len()];
        let trained = self.lora.iter().filter(|_| self.loss.is_some());
        let gradients = trained.flat_map(Lora::params).map(Tensor::f_zeros_like);
        Ok(TrainOut {
            loss: 0.0,
            n_targets: 0,
            n_tokens: 0,
            logprobs: self.samples.iter().map(zeros).collect(),
            top: if self.top_k == 0 {
                Vec::new()
            } else {
                vec![TopK::default(); self.samples.len()]
            },
            gradients: gradients.collect::<Result<_, _>>()?,
            slices: Slices::default(),
        })
    }
}
