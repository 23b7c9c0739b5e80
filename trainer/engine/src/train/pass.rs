//! One row on its way up through the layers, over the unembedding, and down again.

use tch::{Kind, TchError, Tensor};

use super::live::{self, Live};
use super::{TrainError, TrainOut, Work};
use crate::head::LogProbs;
use crate::layer::{Attention, layer_forward, rms_norm};
use crate::lora::LayerLora;
use crate::model::Model;
use crate::pack::Row;
use crate::rope::RopeSlice;

/// A row and how far it is.
#[derive(Debug)]
pub(super) struct Pass {
    row: Packed,
    /// Inputs of the layers that are done (on the way up) or still to be done (on the way down), `[1, t, d]`.
    inputs: Vec<Tensor>,
    stage: Stage,
}

/// What all layers need to know about a row.
#[derive(Debug)]
struct Packed {
    rope: RopeSlice,
    mask: Option<Tensor>,
    live: Vec<Live>,
}

/// What comes next.
#[derive(Debug)]
enum Stage {
    /// The layer whose input is this, `[1, t, d]`.
    Up(Tensor),
    /// A chunk of the unembedding.
    Head(Head),
    /// The layer whose output has this gradient, `[1, t, d]`.
    Down(Tensor),
    /// Nothing.
    End,
}

/// How far the unembedding is.
#[derive(Debug)]
struct Head {
    /// The last layer's output, `[1, t, d]`.
    top: Tensor,
    /// The first live position that is still to be done.
    next: usize,
    /// By the rows of `top` at the live positions that are done, `[n, d]` each.
    grads: Vec<Tensor>,
}

// === impl Pass ===

impl Pass {
    /// Embeds a row; `None` when no position of it has a loss.
    pub(super) fn begin(model: &Model, work: &Work, row: &Row) -> Result<Option<Self>, TchError> {
        let live = live::positions(work, row);
        if live.is_empty() {
            return Ok(None);
        }
        let ids = row
            .pieces
            .iter()
            .flat_map(|p| work.samples[p.sample].input_ids.iter().copied());
        let ids: Vec<i64> = ids.collect();
        let ids = Tensor::f_from_slice(&ids)?
            .f_unsqueeze(0)?
            .f_to_device(model.device)?;
        let rope = model.rope.at(&row.positions(model.device)?)?;
        let mask = row.mask(model.kind, model.device)?;
        Ok(Some(Self {
            row: Packed { rope, mask, live },
            inputs: Vec::with_capacity(model.weights.layers.len()),
            stage: Stage::Up(model.embed(&ids)?),
        }))
    }

    /// Runs one slice; `None` when the row is done.
    pub(super) fn step(
        self,
        model: &Model,
        work: &Work,
        out: &mut TrainOut,
    ) -> Result<Option<Self>, TrainError> {
        let Self {
            row,
            mut inputs,
            stage,
        } = self;
        let stage = match stage {
            Stage::Up(x) => row.up(model, work, &mut inputs, x)?,
            Stage::Head(head) => row.head(model, work, out, head)?,
            Stage::Down(grad) => row.down(model, work, out, (&mut inputs, &grad))?,
            Stage::End => Stage::End,
        };
        let more = !matches!(stage, Stage::End);
        Ok(more.then_some(Self { row, inputs, stage }))
    }
}

// === impl Packed ===

impl Packed {
    fn layer(
        &self,
        model: &Model,
        i: usize,
        lora: Option<&LayerLora>,
        x: &Tensor,
    ) -> Result<Tensor, TchError> {
        let attention = Attention::Causal {
            mask: self.mask.as_ref(),
        };
        layer_forward(
            &model.family,
            &model.weights.layers[i],
            lora,
            x,
            &self.rope,
            attention,
        )
    }

    fn up(
        &self,
        model: &Model,
        work: &Work,
        inputs: &mut Vec<Tensor>,
        x: Tensor,
    ) -> Result<Stage, TchError> {
        let i = inputs.len();
        let y = {
            let _guard = tch::no_grad_guard();
            let lora = work.lora.as_ref().and_then(|lora| lora.layer(i));
            self.layer(model, i, lora, &x)?
        };
        inputs.push(x);
        if inputs.len() < model.weights.layers.len() {
            return Ok(Stage::Up(y));
        }
        if work.loss.is_none() {
            inputs.clear();
        }
        Ok(Stage::Head(Head {
            top: y,
            next: 0,
            grads: Vec::new(),
        }))
    }

    fn head(
        &self,
        model: &Model,
        work: &Work,
        out: &mut TrainOut,
        mut head: Head,
    ) -> Result<Stage, TrainError> {
        let end = self
            .live
            .len()
            .min(head.next + work.sizes.head_positions.max(1));
        let live = &self.live[head.next..end];
        head.next = end;

        let rows = head
            .top
            .f_select(0, 0)?
            .f_index_select(0, &live::rows(live, model.device)?)?;
        let (rows, hidden) = with_grad(|| {
            let rows = leaf(&rows)?;
            let hidden = rms_norm(&rows, &model.weights.norm, model.family.norm_eps)?;
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
            head.grads.extend(vjp(&hidden, &grad, &[rows])?);
        }
        if head.next < self.live.len() {
            return Ok(Stage::Head(head));
        }
        match work.loss {
            Some(_) => Ok(Stage::Down(self.scatter(model, &head)?)),
            None => Ok(Stage::End),
        }
    }

    /// Gradients of the live positions in their places, zeros elsewhere.
    fn scatter(&self, model: &Model, head: &Head) -> Result<Tensor, TchError> {
        let grads_nd = Tensor::f_cat(&head.grads, 0)?;
        let rows = live::rows(&self.live, model.device)?;
        head.top
            .f_select(0, 0)?
            .f_zeros_like()?
            .f_index_copy(0, &rows, &grads_nd)?
            .f_unsqueeze(0)
    }

    /// Recomputes the topmost layer left and takes its vector-Jacobian product.
    fn down(
        &self,
        model: &Model,
        work: &Work,
        out: &mut TrainOut,
        (inputs, grad): (&mut Vec<Tensor>, &Tensor),
    ) -> Result<Stage, TchError> {
        let Some(x) = inputs.pop() else {
            return Ok(Stage::End);
        };
        let i = inputs.len();
        let Some(lora) = work.lora.as_ref().and_then(|lora| lora.layer(i)) else {
            return Ok(Stage::End);
        };
        let (leaves, y) = with_grad(|| {
            let lora = lora.try_map(leaf)?;
            // Nothing is trained below the first layer.
            let x = if i > 0 { leaf(&x)? } else { x };
            let y = self.layer(model, i, Some(&lora), &x)?;
            let mut leaves: Vec<Tensor> = lora.params().map(Tensor::shallow_clone).collect();
            leaves.extend((i > 0).then_some(x));
            Ok((leaves, y))
        })?;
        let grads = vjp(&y, grad, &leaves)?;
        let n_params = lora.params().count();
        let sums = &mut out.gradients[i * n_params..(i + 1) * n_params];
        for (sum, grad) in sums.iter_mut().zip(&grads) {
            *sum = sum.f_add(&grad.f_to_kind(Kind::Float)?)?;
        }
        Ok(match grads.into_iter().nth(n_params) {
            Some(grad) => Stage::Down(grad),
            None => Stage::End,
        })
    }
}

/// The same numbers as a variable of its own.
fn leaf(tensor: &Tensor) -> Result<Tensor, TchError> {
    tensor.f_detach()?.f_set_requires_grad(true)
}

/// Runs `f` with gradients on, whatever the thread's state, which is then restored.
fn with_grad<T>(f: impl FnOnce() -> Result<T, TchError>) -> Result<T, TchError> {
    tch::with_grad(f)
}

/// Gradients of `sum(y * grad)` by the leaves: the vector-Jacobian product, since tch passes no vector.
///
/// The product is only formed for the graph; its value is never read, so its precision does not matter.
fn vjp(y: &Tensor, grad: &Tensor, leaves: &[Tensor]) -> Result<Vec<Tensor>, TchError> {
    let sum = with_grad(|| y.f_mul(grad)?.f_sum(Kind::Float))?;
    Tensor::f_run_backward(&[sum], leaves, false, false)
}
