//! forward_backward and forward, as jobs that are advanced in slices.
//!
//! One call of `backward` over a whole model cannot be interrupted, and a chat that shares the thread
//! would wait for it. So a job keeps each layer's input on the way up, and on the way down recomputes one
//! layer at a time and takes its vector-Jacobian product. A *slice* is half a layer of one row (of the half in
//! which positions do not meet, a chunk of them) or a chunk of the unembedding;
//! [`TrainJob::advance`] runs as many as fit a time budget. What is computed, and in
//! which order, depends on the batch and on [`SliceSizes`] alone: time decides only where a job pauses.
//!
//! A job owns its gradients until it is done. One that fails or is dropped leaves nothing behind.

mod down;
mod live;
mod pass;
mod top;
mod vjp;

use std::time::{Duration, Instant};

use tch::{TchError, Tensor};

use self::pass::Pass;
use crate::datum::{DatumError, Limits, Sample, TrainDatum};
use crate::head::TopK;
use crate::lora::{LayerLora, Lora};
use crate::loss::Loss;
use crate::model::Model;
use crate::pack::{Row, pack, to_i64};

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

/// What [`TrainJob::advance`] left.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once a slice, which takes milliseconds"
)]
pub enum Progress {
    /// The rest.
    More(TrainJob),
    /// The result.
    Done(TrainOut),
}

/// One forward_backward or forward on its way.
#[derive(Debug)]
pub struct TrainJob {
    work: Work,
    rows: std::vec::IntoIter<Row>,
    pass: Option<Pass>,
    out: TrainOut,
}

/// What is to be computed, unchanging.
#[derive(Debug)]
struct Work {
    samples: Vec<Sample>,
    loss: Option<Loss>,
    top_k: usize,
    lora: Option<Lora>,
    sizes: SliceSizes,
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
    fn chunk(self, next: i64, t: i64) -> (i64, i64) {
        (next, to_i64(self.row_tokens.max(1)).min(t - next))
    }
}

// === impl TrainJob ===

impl TrainJob {
    /// Gradients of a loss by the parameters of `lora`, which is not changed.
    ///
    /// # Errors
    /// A datum that does not fit the model or the loss, or an adapter of another depth.
    pub fn forward_backward(
        model: &Model,
        lora: &Lora,
        datums: &[TrainDatum],
        loss: Loss,
        sizes: SliceSizes,
    ) -> Result<Self, TrainError> {
        let samples = Sample::check_all(datums, Some(&loss), limits(model))?;
        let lora = Some(lora.shallow_clone());
        let work = Work {
            samples,
            loss: Some(loss),
            top_k: 0,
            lora,
            sizes,
        };
        Self::new(model, work)
    }

    /// Log-probabilities of the targets at every position, and the likeliest tokens; `None` switches adapters off.
    ///
    /// # Errors
    /// A datum that does not fit the model, `top_k` over the vocabulary, or an adapter of another depth.
    pub fn forward(
        model: &Model,
        lora: Option<&Lora>,
        datums: &[TrainDatum],
        top_k: usize,
        sizes: SliceSizes,
    ) -> Result<Self, TrainError> {
        let limits = limits(model);
        let samples = Sample::check_all(datums, None, limits)?;
        let max = usize::try_from(limits.vocab).unwrap_or(usize::MAX);
        if top_k > max {
            return Err(TrainError::TopK { found: top_k, max });
        }
        let lora = lora.map(Lora::shallow_clone);
        Self::new(
            model,
            Work {
                samples,
                loss: None,
                top_k,
                lora,
                sizes,
            },
        )
    }

    fn new(model: &Model, work: Work) -> Result<Self, TrainError> {
        let wanted = model.weights.layers.len();
        if let Some(found) = work
            .lora
            .as_ref()
            .map(Lora::n_layers)
            .filter(|&n| n != wanted)
        {
            return Err(TrainError::Layers { found, wanted });
        }
        let lengths: Vec<usize> = work.samples.iter().map(|s| s.input_ids.len()).collect();
        let rows = pack(&lengths, work.sizes.row_tokens).into_iter();
        let out = work.empty_out()?;
        Ok(Self {
            work,
            rows,
            pass: None,
            out,
        })
    }

    /// Runs slices for about `budget`: at least one, and no further one that would likely exceed it.
    ///
    /// # Errors
    /// [`TrainError::NotFinite`] or [`TrainError::Torch`]; the job and its gradients are gone.
    pub fn advance(mut self, model: &Model, budget: Duration) -> Result<Progress, TrainError> {
        let begun = Instant::now();
        loop {
            let slice = Instant::now();
            let more = self.slice(model)?;
            let took = slice.elapsed();
            let slices = &mut self.out.slices;
            slices.count += 1;
            slices.longest = slices.longest.max(took);
            slices.total += took;
            if !more {
                return Ok(Progress::Done(self.out));
            }
            if begun.elapsed() + took > budget {
                return Ok(Progress::More(self));
            }
        }
    }

    /// Runs to the end without pause.
    ///
    /// # Errors
    /// As [`TrainJob::advance`].
    pub fn finish(self, model: &Model) -> Result<TrainOut, TrainError> {
        match self.advance(model, Duration::MAX / 2)? {
            Progress::Done(out) => Ok(out),
            // Not reached within the lifetime of the universe, and right all the same.
            Progress::More(rest) => rest.finish(model),
        }
    }

    /// One slice; false when that was the last.
    fn slice(&mut self, model: &Model) -> Result<bool, TrainError> {
        let pass = match self.pass.take() {
            Some(pass) => pass,
            None => match self.next_pass(model)? {
                Some(pass) => pass,
                None => return Ok(false),
            },
        };
        self.pass = pass.step(model, &self.work, &mut self.out)?;
        Ok(self.pass.is_some() || self.rows.len() > 0)
    }

    /// The next row that has a loss anywhere.
    fn next_pass(&mut self, model: &Model) -> Result<Option<Pass>, TchError> {
        for row in self.rows.by_ref() {
            if let Some(pass) = Pass::begin(model, &self.work, &row)? {
                self.out.n_tokens += row.len();
                return Ok(Some(pass));
            }
        }
        Ok(None)
    }
}

// === impl Work ===

impl Work {
    /// The adapters of a layer, if any are on.
    fn adapter(&self, layer: usize) -> Option<&LayerLora> {
        self.lora.as_ref()?.layer(layer)
    }

    fn empty_out(&self) -> Result<TrainOut, TchError> {
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

fn limits(model: &Model) -> Limits {
    Limits {
        vocab: u32::try_from(model.family.vocab).unwrap_or(u32::MAX),
        context: model.family.context,
    }
}

#[cfg(test)]
mod tests;
