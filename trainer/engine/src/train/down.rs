//! One layer on the way down: recomputed, and its vector-Jacobian product taken, half by half.
//!
//! The half that attends must see the whole row; the other, three quarters of the work, is cut into chunks of
//! positions, so that a long row does not mean a long slice.

use tch::{Kind, TchError, Tensor};

use super::packed::Packed;
use super::vjp::{leaf, vjp, with_grad};
use super::work::{TrainOut, Work};
use crate::layer::{attention_half, mlp_half};
use crate::lora::LayerLora;
use crate::model::Model;

/// A layer whose attention half is recomputed, and how far its other half is.
#[derive(Debug)]
pub(super) struct Down {
    layer: usize,
    /// By the layer's output, `[1, t, d]`.
    grad: Tensor,
    /// Variables of this layer alone.
    lora: LayerLora,
    /// The layer's input as a variable; `None` in the first layer, below which nothing is trained.
    input: Option<Tensor>,
    /// What the attention half gave, `[1, t, d]`, with its graph.
    mid: Tensor,
    /// The first position whose second half is still to be done.
    next: i64,
    /// By `mid`, chunk by chunk.
    mid_grads: Vec<Tensor>,
}

impl Down {
    /// Recomputes the attention half; `None` for a layer without an adapter, which a model does not have.
    pub(super) fn open(
        row: &Packed,
        model: &Model,
        work: &Work,
        (layer, x, grad): (usize, Tensor, Tensor),
    ) -> Result<Option<Self>, TchError> {
        let Some(lora) = work.adapter(layer) else {
            return Ok(None);
        };
        with_grad(|| {
            let lora = lora.try_map(leaf)?;
            let input = (layer > 0).then(|| leaf(&x)).transpose()?;
            let x = input.as_ref().unwrap_or(&x);
            let (family, weights) = (&model.family, &model.weights.layers[layer]);
            let mid = attention_half(family, weights, Some(&lora), x, &row.rope, row.attention())?;
            let (next, mid_grads) = (0, Vec::new());
            Ok(Some(Self {
                layer,
                grad,
                lora,
                input,
                mid,
                next,
                mid_grads,
            }))
        })
    }

    /// Whether the second half is done.
    pub(super) fn is_fed(&self) -> bool {
        self.next >= self.mid.size()[1]
    }

    /// The second half of one chunk.
    pub(super) fn feed(
        &mut self,
        model: &Model,
        work: &Work,
        out: &mut TrainOut,
    ) -> Result<(), TchError> {
        let (start, len) = work.sizes.chunk(self.next, self.mid.size()[1]);
        self.next += len;
        let weights = &model.weights.layers[self.layer];
        let (x, y) = with_grad(|| {
            let x = leaf(&self.mid.f_narrow(1, start, len)?)?;
            let y = mlp_half(&model.family, weights, Some(&self.lora), &x)?;
            Ok((x, y))
        })?;
        let first = self.lora.n_attention();
        let params: Vec<&Tensor> = self.lora.params().skip(first).chain([&x]).collect();
        let mut grads = vjp(&y, &self.grad.f_narrow(1, start, len)?, &params)?;
        self.mid_grads.extend(grads.pop());
        self.add(first, &grads, out)
    }

    /// The attention half; returns the gradient by the layer's input, if that is wanted further down.
    pub(super) fn attend(self, out: &mut TrainOut) -> Result<Option<Tensor>, TchError> {
        let n_params = self.lora.n_attention();
        let params = self.lora.params().take(n_params);
        let leaves: Vec<&Tensor> = params.chain(&self.input).collect();
        if leaves.is_empty() {
            return Ok(None);
        }
        let grad = Tensor::f_cat(&self.mid_grads, 1)?;
        let mut grads = vjp(&self.mid, &grad, &leaves)?;
        let input = if self.input.is_some() {
            grads.pop()
        } else {
            None
        };
        self.add(0, &grads, out)?;
        Ok(input)
    }

    /// Adds gradients of this layer's parameters from the `first` on, in f32.
    fn add(&self, first: usize, grads: &[Tensor], out: &mut TrainOut) -> Result<(), TchError> {
        let first = self.layer * self.lora.params().count() + first;
        for (sum, grad) in out.gradients[first..].iter_mut().zip(grads) {
            *sum = sum.f_add(&grad.f_to_kind(Kind::Float)?)?;
        }
        Ok(())
    }
}
