//! Over the LM head: where log-probabilities are read and gradients begin.

use tch::{Kind, Tensor};

use super::graph::{leaf, with_grad};
use super::positions::{self, LossPosition};
use super::work::{PassWork, TrainJobError, TrainOut};
use crate::aten::vjp;
use crate::head::{self, LogProbs};
use crate::lora::Segment;
use crate::model::Model;
use crate::torch::Result;

#[derive(Debug)]
pub(super) struct LmHeadPass {
    /// The last layer's output, `[1, t, d]`.
    hidden: Tensor,
    next: usize,
    /// The gradients by the rows of `hidden` at the finished loss positions, `[n, d]` each.
    grads: Vec<Tensor>,
}

impl LmHeadPass {
    /// `hidden` is where the LM head is.
    pub(super) fn new(hidden: Tensor) -> Self {
        Self {
            hidden,
            next: 0,
            grads: Vec::new(),
        }
    }

    pub(super) fn is_done(&self, positions: &[LossPosition]) -> bool {
        self.next >= positions.len()
    }

    pub(super) fn chunk(
        &mut self,
        model: &Model,
        work: &PassWork,
        positions: &[LossPosition],
        out: &mut TrainOut,
    ) -> Result<(), TrainJobError> {
        let end = positions
            .len()
            .min(self.next + work.sizes.head_positions.max(1));
        let positions = &positions[self.next..end];
        self.next = end;

        let places = positions::places(positions, model.placement.last())?;
        let rows = self.hidden.f_select(0, 0)?.f_index_select(0, &places)?;
        let (rows, hidden) = with_grad(|| {
            let rows = leaf(&rows)?;
            let hidden = model.last_norm(&rows)?;
            Ok((rows, hidden))
        })?;
        let hidden_nd = hidden.f_detach()?;
        let lm_head = &model.weights.lm_head;
        let targets_nk = positions::targets(positions, model.placement.last())?;
        let adapter = Segment::whole(hidden_nd.size2()?.0, work.lora.as_ref());
        let chunk = LogProbs::new(
            &hidden_nd,
            lm_head,
            adapter.as_slice(),
            model.config.logit_cap,
        )?;
        let gradients = positions::record(positions, work, &chunk.of(&targets_nk)?, out)?;
        if work.top_k > 0 {
            positions::record_top(positions, work.top_k, &chunk.top(work.top_k)?, out);
        }
        if work.loss.is_none() {
            return Ok(());
        }
        let gradients = Tensor::f_from_slice(&gradients)?.f_to_kind(Kind::Float)?;
        let gradients_nk = gradients
            .f_view_as(&targets_nk)?
            .f_to_device(model.placement.last())?;
        let grad_nv = chunk.gradient(&targets_nk, &gradients_nk)?;
        let from_adapter = backward(work, &hidden_nd, &grad_nv, out)?;
        if work.trains_layers() {
            let mut grad = head::backward(&grad_nv, lm_head)?;
            if let Some(more) = from_adapter {
                grad = more.f_add(&grad)?;
            }
            self.grads.extend(vjp(&[(&hidden, &grad)], &[&rows])?);
        }
        Ok(())
    }

    /// The gradient by the last layer's output, `[1, t, d]`: loss positions in their places, zeros elsewhere.
    pub(super) fn gradient(&self, model: &Model, positions: &[LossPosition]) -> Result<Tensor> {
        let grads_nd = Tensor::f_cat(&self.grads, 0)?;
        let places = positions::places(positions, model.placement.last())?;
        let zeros = self.hidden.f_select(0, 0)?.f_zeros_like()?;
        zeros.f_index_copy(0, &places, &grads_nd)?.f_unsqueeze(0)
    }
}

/// Adds up the gradients by the LM head's adapter, and gives its part of that by the hidden states, `[n, d]`, f32.
fn backward(
    work: &PassWork,
    hidden_nd: &Tensor,
    grad_nv: &Tensor,
    out: &mut TrainOut,
) -> Result<Option<Tensor>> {
    // The LM head's parameters are the last ones.
    let (Some(head), [.., a, b]) = (work.head(), out.gradients.as_mut_slice()) else {
        return Ok(None);
    };
    head.backward(hidden_nd, grad_nv, [a, b]).map(Some)
}
