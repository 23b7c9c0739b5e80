//! Over the unembedding: where log-probabilities are read and gradients begin.

use tch::{Kind, TchError, Tensor};

use super::live::{self, Live};
use super::vjp::{leaf, vjp, with_grad};
use super::work::{TrainError, TrainOut, Work};
use crate::head::LogProbs;
use crate::model::Model;

/// How far the unembedding of a row is.
#[derive(Debug)]
pub(super) struct Top {
    /// The last layer's output, `[1, t, d]`.
    hidden: Tensor,
    /// The first live position that is still to be done.
    next: usize,
    /// By the rows of `hidden` at the live positions that are done, `[n, d]` each.
    grads: Vec<Tensor>,
}

impl Top {
    pub(super) fn new(hidden: Tensor) -> Self {
        Self {
            hidden,
            next: 0,
            grads: Vec::new(),
        }
    }

    /// Whether every live position is done.
    pub(super) fn is_done(&self, live: &[Live]) -> bool {
        self.next >= live.len()
    }

    /// One chunk.
    pub(super) fn chunk(
        &mut self,
        model: &Model,
        work: &Work,
        live: &[Live],
        out: &mut TrainOut,
    ) -> Result<(), TrainError> {
        let end = live.len().min(self.next + work.sizes.head_positions.max(1));
        let live = &live[self.next..end];
        self.next = end;

        let rows = live::rows(live, model.device)?;
        let rows = self.hidden.f_select(0, 0)?.f_index_select(0, &rows)?;
        let (rows, hidden) = with_grad(|| {
            let rows = leaf(&rows)?;
            let hidden = model.last_norm(&rows)?;
            Ok((rows, hidden))
        })?;
        let unembed = &model.weights.unembed;
        let targets_nk = live::targets(live, work, model.device)?;
        let chunk = LogProbs::new(&hidden.f_detach()?, unembed)?;
        let slopes = live::record(live, work, &chunk.of(&targets_nk)?, out)?;
        if work.top_k > 0 {
            live::record_top(live, work.top_k, &chunk.top(work.top_k)?, out);
        }
        if work.loss.is_some() {
            let slopes_nk = Tensor::f_from_slice(&slopes)?.f_to_kind(Kind::Float)?;
            let slopes_nk = slopes_nk
                .f_view_as(&targets_nk)?
                .f_to_device(model.device)?;
            let grad = chunk.pull_back(&targets_nk, &slopes_nk, unembed)?;
            self.grads.extend(vjp(&hidden, &grad, &[&rows])?);
        }
        Ok(())
    }

    /// The gradient by the last layer's output, `[1, t, d]`: live positions in their places, zeros elsewhere.
    pub(super) fn gradient(&self, model: &Model, live: &[Live]) -> Result<Tensor, TchError> {
        let grads_nd = Tensor::f_cat(&self.grads, 0)?;
        let rows = live::rows(live, model.device)?;
        let zeros = self.hidden.f_select(0, 0)?.f_zeros_like()?;
        zeros.f_index_copy(0, &rows, &grads_nd)?.f_unsqueeze(0)
    }
}
