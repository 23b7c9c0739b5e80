//! The input of a training job, and its result.

use std::time::Duration;

use metaclaw_trainer_terms::LossFn;
use tch::{Kind, TchError, Tensor};

use super::sizes::SliceSizes;
use crate::datum::{LossSample, TrainInputError};
use crate::head::TopTokens;
use crate::lora::{HeadLora, LayerLora, Lora};
use crate::loss::Loss;
use crate::torch::Result;

/// Why a job stopped. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
pub enum TrainJobError {
    /// Datums, or positions of them, that do not fit.
    #[error(transparent)]
    Input(#[from] TrainInputError),
    /// More tokens asked for than there are.
    #[error("top_k is {found}, allowed are 0 to {max}, the vocabulary")]
    TopK { found: usize, max: usize },
    /// The adapter is of another model.
    #[error("the adapter has {found} layers, the model has {wanted}")]
    Layers { found: usize, wanted: usize },
    /// A single sample needs more memory than there is. Its row cannot be cut further.
    #[error(
        "datums[{datum}] has {n_tokens} tokens, which need {} to train on, {} are free for training: at most {max_tokens} tokens fit",
        super::plan::bytes(*needed), super::plan::bytes(*budget)
    )]
    Memory {
        datum: usize,
        n_tokens: usize,
        /// Bytes that they need with every layer computed again on the way down.
        needed: usize,
        budget: usize,
        /// The longest that would fit.
        max_tokens: usize,
    },
    /// The planned memory was not enough, and neither was less.
    #[error(
        "out of memory in training, with the batch cut as small as it can be: {detail}; shorter samples, a smaller --kv-budget or a smaller model leave more"
    )]
    OutOfMemory { detail: String },
    /// A loss that is infinite or no number; its gradient would ruin the adapter.
    #[error(
        "the {loss} loss of datums[{datum}] at position {position} is not finite: log-probability {logprob} now, {sampled} when sampled"
    )]
    NotFinite {
        loss: LossFn,
        datum: usize,
        position: usize,
        logprob: f32,
        sampled: f32,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// The result of a finished job.
#[derive(Debug)]
pub struct TrainOut {
    /// The sum over all positions; 0 for a forward job.
    pub loss: f64,
    /// Targets that had a loss; all targets that were wanted for a forward job.
    pub n_loss_tokens: usize,
    /// Positions that were computed: what samples share is counted once.
    pub n_tokens: usize,
    /// Log-probability of each target, one list a datum in its `[N, K]` shape; `None` at positions that have no
    /// loss, or were not wanted, and hence were not computed.
    pub logprobs: Vec<Vec<Option<f32>>>,
    /// The likeliest tokens of every position that was wanted, one a datum; empty unless asked for.
    pub top: Vec<TopTokens>,
    /// One f32 tensor for each parameter, in [`Lora::params`]' order and shape; empty for a forward job.
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
    /// The job's computing time, without waiting.
    pub total: Duration,
}

#[derive(Debug)]
pub(super) struct PassWork {
    pub(super) samples: Vec<LossSample>,
    pub(super) wanted: Vec<Vec<bool>>,
    pub(super) loss: Option<Loss>,
    pub(super) top_k: usize,
    pub(super) lora: Option<Lora>,
    pub(super) sizes: SliceSizes,
    pub(super) memory: usize,
}

// === impl PassWork ===

impl PassWork {
    pub(super) fn adapter(&self, layer: usize) -> Option<&LayerLora> {
        self.lora.as_ref()?.layer(layer)
    }

    pub(super) fn head(&self) -> Option<&HeadLora> {
        self.lora.as_ref()?.head()
    }

    pub(super) fn trains_layers(&self) -> bool {
        let has_layers = |lora: &Lora| !lora.spec.targets.layers.is_empty();
        self.loss.is_some() && self.lora.as_ref().is_some_and(has_layers)
    }

    pub(super) fn is_wanted(&self, sample: usize, position: usize) -> bool {
        self.wanted[sample][position]
    }

    pub(super) fn empty_out(&self) -> Result<TrainOut> {
        let none = |sample: &LossSample| vec![None; sample.target_ids.len()];
        let trained = self.lora.iter().filter(|_| self.loss.is_some());
        let zeros = |param: &Tensor| Tensor::f_zeros(param.size(), (Kind::Float, param.device()));
        let gradients = trained.flat_map(Lora::params).map(zeros);
        Ok(TrainOut {
            loss: 0.0,
            n_loss_tokens: 0,
            n_tokens: 0,
            logprobs: self.samples.iter().map(none).collect(),
            top: if self.top_k == 0 {
                Vec::new()
            } else {
                vec![TopTokens::default(); self.samples.len()]
            },
            gradients: gradients.collect::<Result<_, _>>()?,
            slices: Slices::default(),
        })
    }
}
