//! One row on its way up through the layers, over the unembedding, and down again.

use tch::{TchError, Tensor};

use super::down::Down;
use super::live;
use super::packed::Packed;
use super::top::Top;
use super::work::{TrainError, TrainOut, Work};
use crate::layer::{attention_half, mlp_half};
use crate::model::Model;
use crate::pack::Row;

/// A row and how far it is.
#[derive(Debug)]
pub(super) struct Pass {
    row: Packed,
    /// Inputs of the layers that are done (on the way up) or still to be done (on the way down), `[1, t, d]`.
    inputs: Vec<Tensor>,
    stage: Stage,
}

/// What comes next.
#[derive(Debug)]
enum Stage {
    /// Up: the attention half of the layer whose input is this, `[1, t, d]`.
    Attend(Tensor),
    /// Up: a chunk of the other half.
    Feed(Feed),
    /// A chunk of the unembedding.
    Top(Top),
    /// Down: the layer whose output has this gradient, `[1, t, d]`.
    Open(Tensor),
    /// Down: a chunk of its second half, or, after the last chunk, its attention half.
    Down(Box<Down>),
    /// Nothing.
    End,
}

/// How far the second half of a layer is on the way up.
#[derive(Debug)]
struct Feed {
    /// What the attention half gave, `[1, t, d]`.
    mid: Tensor,
    /// The first position that is still to be done.
    next: i64,
    /// The layer's output, chunk by chunk.
    done: Vec<Tensor>,
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
            .flat_map(|p| &work.samples[p.sample].input_ids);
        let ids: Vec<i64> = ids.copied().collect();
        let ids = Tensor::f_from_slice(&ids)?
            .f_unsqueeze(0)?
            .f_to_device(model.device)?;
        let rope = model.rope.at(&row.positions(model.device)?)?;
        let mask = row.mask(model.kind, model.device)?;
        Ok(Some(Self {
            row: Packed { rope, mask, live },
            inputs: Vec::with_capacity(model.weights.layers.len()),
            stage: Stage::Attend(model.embed(&ids)?),
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
            Stage::Attend(x) => attend(&row, model, work, &mut inputs, x)?,
            Stage::Feed(begun) => feed(model, work, &mut inputs, begun)?,
            Stage::Top(top) => unembed(&row, model, work, out, top)?,
            Stage::Open(grad) => open(&row, model, work, &mut inputs, grad)?,
            Stage::Down(begun) => down(model, work, out, begun)?,
            Stage::End => Stage::End,
        };
        let more = !matches!(stage, Stage::End);
        Ok(more.then_some(Self { row, inputs, stage }))
    }
}

/// The attention half of the next layer.
fn attend(
    row: &Packed,
    model: &Model,
    work: &Work,
    inputs: &mut Vec<Tensor>,
    x: Tensor,
) -> Result<Stage, TchError> {
    let _guard = tch::no_grad_guard();
    let i = inputs.len();
    let lora = work.adapter(i);
    let (family, weights) = (&model.family, &model.weights.layers[i]);
    let mid = attention_half(family, weights, lora, &x, &row.rope, row.attention())?;
    inputs.push(x);
    Ok(Stage::Feed(Feed {
        mid,
        next: 0,
        done: Vec::new(),
    }))
}

/// A chunk of the unembedding.
fn unembed(
    row: &Packed,
    model: &Model,
    work: &Work,
    out: &mut TrainOut,
    mut top: Top,
) -> Result<Stage, TrainError> {
    top.chunk(model, work, &row.live, out)?;
    Ok(match work.loss {
        _ if !top.is_done(&row.live) => Stage::Top(top),
        Some(_) => Stage::Open(top.gradient(model, &row.live)?),
        None => Stage::End,
    })
}

/// The topmost layer that is left, begun on the way down.
fn open(
    row: &Packed,
    model: &Model,
    work: &Work,
    inputs: &mut Vec<Tensor>,
    grad: Tensor,
) -> Result<Stage, TchError> {
    let Some(x) = inputs.pop() else {
        return Ok(Stage::End);
    };
    let down = Down::open(row, model, work, (inputs.len(), x, grad))?;
    Ok(down.map_or(Stage::End, |down| Stage::Down(Box::new(down))))
}

/// A chunk of the second half of the topmost layer begun.
fn feed(
    model: &Model,
    work: &Work,
    inputs: &mut [Tensor],
    mut feed: Feed,
) -> Result<Stage, TchError> {
    let _guard = tch::no_grad_guard();
    let i = inputs.len() - 1;
    let lora = work.adapter(i);
    let t = feed.mid.size()[1];
    let (start, len) = work.sizes.chunk(feed.next, t);
    let x = feed.mid.f_narrow(1, start, len)?;
    feed.done
        .push(mlp_half(&model.family, &model.weights.layers[i], lora, &x)?);
    feed.next += len;
    if feed.next < t {
        return Ok(Stage::Feed(feed));
    }
    if work.loss.is_none() {
        // Nobody comes back down; the stack only counts layers.
        inputs[i] = Tensor::new();
    }
    let y = Tensor::f_cat(&feed.done, 1)?;
    let up = inputs.len() < model.weights.layers.len();
    Ok(if up {
        Stage::Attend(y)
    } else {
        Stage::Top(Top::new(y))
    })
}

/// A chunk of the second half, or the attention half, of a layer on the way down.
fn down(
    model: &Model,
    work: &Work,
    out: &mut TrainOut,
    mut down: Box<Down>,
) -> Result<Stage, TchError> {
    if !down.is_fed() {
        down.feed(model, work, out)?;
        return Ok(Stage::Down(down));
    }
    Ok(down.attend(out)?.map_or(Stage::End, Stage::Open))
}
