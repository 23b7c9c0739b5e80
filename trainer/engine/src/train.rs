//! forward_backward and forward, as jobs that are advanced in slices.
//!
//! One call of `backward` over a whole model cannot be interrupted, and a chat that shares the thread
//! would wait for it. So a job takes the vector-Jacobian product of one layer at a time, from a graph that it kept
//! on the way up where memory allows, else from one that it computes again. Samples that begin alike are
//! computed once ([`crate::pack`]). A *slice* is a layer of a chunk of positions, or a chunk of the LM head;
//! [`TrainJob::advance`] runs as many as fit a time budget. What is computed, and in
//! which order, depends on the batch and on [`SliceSizes`] alone: time decides only where a job pauses.
//!
//! A job owns its gradients until it is done. One that fails or is dropped leaves nothing behind.

mod backward;
mod chunk;
mod compute;
mod forward;
mod graph;
mod lm_head;
mod net;
mod net_backward;
mod pass;
mod plan;
mod positions;
mod shared;
mod sizes;
mod work;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use metaclaw_trainer_terms::Datum;
use tch::TchError;

use self::pass::RowPass;
pub use self::plan::Plan;
use self::plan::{Costs, budget, rank};
pub use self::sizes::SliceSizes;
use self::work::PassWork;
pub use self::work::{Slices, TrainJobError, TrainOut};
use crate::datum::{self, Limits, LossSample};
use crate::device;
use crate::guard::guarded;
use crate::lora::Lora;
use crate::loss::Loss;
use crate::model::Model;
use crate::pack::{Row, pack};
use crate::torch::Result;

/// A forward_backward or forward job under way.
#[derive(Debug)]
pub struct TrainJob {
    work: PassWork,
    rows: std::vec::IntoIter<Row>,
    pass: Option<RowPass>,
    out: TrainOut,
}

/// The outputs of a forward job beside the log-probabilities of targets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Positions of each datum, ascending; `None` is every position. The LM head, most of the work for a small model,
    /// is computed only at these.
    pub positions: Option<Vec<Vec<usize>>>,
    /// How many of the likeliest tokens at each; 0 is none.
    pub top_k: usize,
}

// === impl TrainJob ===

impl TrainJob {
    /// Gradients of a loss by the parameters of `lora`, which is not changed.
    ///
    /// # Shapes
    /// `lora`: as [`Lora::init`] makes it for the model, f32. The gradients of the result: one a parameter, of its shape, f32.
    ///
    /// # Errors
    /// A datum that does not fit the model, the loss or the memory, or an adapter of another depth.
    pub fn forward_backward(
        model: &Model,
        lora: &Lora,
        datums: &[Datum],
        loss: Loss,
        sizes: SliceSizes,
    ) -> Result<Self, TrainJobError> {
        let samples = LossSample::check_all(datums, Some(&loss), limits(model))?;
        let wanted = samples.iter().map(|sample| sample.loss_positions(&loss));
        Self::new(
            model,
            PassWork {
                wanted: wanted.collect(),
                samples,
                loss: Some(loss),
                top_k: 0,
                lora: Some(adapters(lora, model, sizes)?),
                sizes,
                memory: budget(sizes),
            },
        )
    }

    /// Log-probabilities of the targets, and the likeliest tokens; without `lora` they are the base's.
    ///
    /// # Shapes
    /// `lora`: as [`Lora::init`] makes it for the model, f32.
    ///
    /// # Errors
    /// A datum that does not fit the model or the memory, positions that are not there, `top_k` over the vocabulary,
    /// or an adapter of another depth.
    pub fn forward(
        model: &Model,
        lora: Option<&Lora>,
        datums: &[Datum],
        wanted: &Wanted,
        sizes: SliceSizes,
    ) -> Result<Self, TrainJobError> {
        let limits = limits(model);
        let samples = LossSample::check_all(datums, None, limits)?;
        let max = usize::try_from(limits.vocab).unwrap_or(usize::MAX);
        let top_k = wanted.top_k;
        if top_k > max {
            return Err(TrainJobError::TopK { found: top_k, max });
        }
        Self::new(
            model,
            PassWork {
                wanted: datum::wanted(&samples, wanted.positions.as_deref())?,
                samples,
                loss: None,
                top_k,
                lora: lora.map(|lora| adapters(lora, model, sizes)).transpose()?,
                sizes,
                memory: budget(sizes),
            },
        )
    }

    fn new(model: &Model, work: PassWork) -> Result<Self, TrainJobError> {
        let wanted = model.weights.layers.len();
        if let Some(found) = work
            .lora
            .as_ref()
            .map(Lora::n_layers)
            .filter(|&n| n != wanted)
        {
            return Err(TrainJobError::Layers { found, wanted });
        }
        let costs = Costs::new(model, rank(work.lora.as_ref()), work.sizes);
        let fitting = costs.fitting(work.memory);
        // Positions after the last wanted one are dropped, because no wanted position sees them.
        let pairs = work.samples.iter().zip(&work.wanted).enumerate();
        let needed = pairs.filter_map(|(sample, (s, wanted))| {
            let last = wanted.iter().rposition(|&is_wanted| is_wanted)?;
            Some((sample, &s.input_ids[..=last]))
        });
        let samples: Vec<(usize, &[i64])> = needed.collect();
        let lengths = samples.iter().map(|&(sample, ids)| (sample, ids.len()));
        if let Some((datum, n_tokens)) = lengths.max_by_key(|&(_, n)| n)
            && n_tokens > fitting
        {
            return Err(TrainJobError::Memory {
                datum,
                n_tokens,
                needed: costs.recomputed(n_tokens),
                budget: work.memory,
                max_tokens: fitting,
            });
        }
        let sizes = work.sizes;
        let tree = sizes.row_tokens.min(fitting);
        let packed = sizes.pack_tokens.min(sizes.chunk_tokens);
        let rows = pack(&samples, tree, packed.min(fitting)).into_iter();
        let out = work.empty_out()?;
        Ok(Self {
            work,
            rows,
            pass: None,
            out,
        })
    }

    /// Runs slices for about `budget`: at least one, and no further one that would likely exceed it. Goes on with the
    /// rest, or ends with the result.
    ///
    /// # Errors
    /// [`TrainJobError::NotFinite`] or [`TrainJobError::Torch`]; the job and its gradients are gone.
    pub fn advance(
        mut self,
        model: &Model,
        budget: Duration,
    ) -> Result<ControlFlow<TrainOut, Self>, TrainJobError> {
        let begun = Instant::now();
        loop {
            let slice = Instant::now();
            // Calls with a number among their arguments (`f_mul_scalar`, `f_full`) panic where they should fail: tch frees the
            // number before it reads libtorch's error, and finds that error there.
            let ran = guarded("slice", || self.slice(model));
            let more = match ran.unwrap_or_else(|text| Err(TchError::Torch(text).into())) {
                Err(TrainJobError::Torch(error)) if device::is_out_of_memory(&error) => {
                    self = self.begin_smaller(model, &error)?;
                    true
                }
                more => more?,
            };
            model.placement.wait();
            let took = slice.elapsed();
            let slices = &mut self.out.slices;
            slices.count += 1;
            slices.longest = slices.longest.max(took);
            slices.total += took;
            if !more {
                return Ok(ControlFlow::Break(self.out));
            }
            if begun.elapsed() + took > budget {
                return Ok(ControlFlow::Continue(self));
            }
        }
    }

    /// Begins the same work again in smaller slices after a lack of memory. Partial results are dropped, because the
    /// sums hold half a row's gradients.
    fn begin_smaller(self, model: &Model, error: &TchError) -> Result<Self, TrainJobError> {
        let Self {
            mut work,
            rows,
            pass,
            out,
        } = self;
        drop((rows, pass, out));
        let Some(sizes) = work.sizes.smaller() else {
            // Only the first line counts: libtorch puts its stack below it.
            let text = error.to_string();
            let detail = text.lines().next().unwrap_or_default().to_owned();
            return Err(TrainJobError::OutOfMemory { detail });
        };
        work.sizes = sizes;
        work.memory /= 2;
        tracing::warn!(
            %error,
            memory = work.memory,
            chunk_tokens = sizes.chunk_tokens,
            "out of memory: the batch is begun again, cut smaller"
        );
        Self::new(model, work)
    }

    /// Runs to the end without pause.
    ///
    /// # Errors
    /// As [`TrainJob::advance`].
    pub fn finish(self, model: &Model) -> Result<TrainOut, TrainJobError> {
        match self.advance(model, Duration::MAX / 2)? {
            ControlFlow::Break(out) => Ok(out),
            // This is never reached in practice, and it is correct.
            ControlFlow::Continue(rest) => rest.finish(model),
        }
    }

    /// Runs one slice. Returns false after the last one.
    fn slice(&mut self, model: &Model) -> Result<bool, TrainJobError> {
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

    fn next_pass(&mut self, model: &Model) -> Result<Option<RowPass>> {
        for row in self.rows.by_ref() {
            if let Some(pass) = RowPass::begin(model, &self.work, &row)? {
                self.out.n_tokens += row.len();
                return Ok(Some(pass));
            }
        }
        Ok(None)
    }
}

/// The parameters that a job computes with.
fn adapters(lora: &Lora, model: &Model, sizes: SliceSizes) -> Result<Lora> {
    if sizes.as_gpu {
        lora.with_layers_in(model.kind)
    } else {
        Ok(lora.shallow_clone())
    }
}

fn limits(model: &Model) -> Limits {
    Limits {
        vocab: u32::try_from(model.config.vocab).unwrap_or(u32::MAX),
        context: model.config.context,
    }
}

#[cfg(test)]
mod tests;
