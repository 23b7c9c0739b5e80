//! The pass of one row: up through the layers, over the LM head, and down again.

use tch::Tensor;

use super::backward::LayerBackward;
use super::chunk::{self, Chunk};
use super::forward::{Kept, LayerForward};
use super::lm_head::LmHeadPass;
use super::plan::{Costs, rank};
use super::positions::{self, LossPosition};
use super::shared::SharedKeys;
use super::work::{PassWork, TrainJobError, TrainOut};
use crate::model::Model;
use crate::pack::Row;
use crate::torch::Result;

#[derive(Debug)]
pub(super) struct RowPass {
    chunks: Vec<Chunk>,
    positions: Vec<LossPosition>,
    /// Layers from this one on keep their graphs; those below are computed again on the way down.
    first_kept: usize,
    /// One entry for each layer that the forward pass has finished and the backward pass has not.
    kept: Vec<Kept>,
    shared: SharedKeys,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// A chunk of a layer on the way up.
    Up(Box<LayerForward>),
    /// A chunk of the LM head.
    LmHead(LmHeadPass),
    /// A chunk of a layer on the way down.
    Down(Box<LayerBackward>),
    End,
}

// === impl RowPass ===

impl RowPass {
    /// Embeds a row; `None` when no position of it has a loss.
    pub(super) fn begin(model: &Model, work: &PassWork, row: &Row) -> Result<Option<Self>> {
        let positions = positions::of_row(work, row);
        if positions.is_empty() {
            return Ok(None);
        }
        let mut ids = Vec::with_capacity(row.len());
        for (sample, range) in row.contents() {
            ids.extend_from_slice(&work.samples[sample].input_ids[range]);
        }
        let ids = Tensor::f_from_slice(&ids)?
            .f_unsqueeze(0)?
            .f_to_device(model.placement.first())?;
        let n_layers = model.weights.layers.len();
        let x = model.embed(&ids)?;
        let mut chunks = chunk::cut(row, work.sizes, model)?;
        for chunk in &mut chunks {
            chunk.own = model.own_inputs(&chunk.of(&ids, 1)?, &chunk.of(&x, 1)?)?;
        }
        let costs = Costs::new(model, rank(work.lora.as_ref()), work.sizes);
        let n_copied = chunks.iter().map(Chunk::n_copied).sum();
        let n_kept = costs.n_kept(row.len(), n_copied, work.memory);
        let first_kept = n_layers.saturating_sub(n_kept);
        let mut pass = Self {
            chunks,
            positions,
            first_kept,
            kept: Vec::with_capacity(n_layers),
            shared: SharedKeys::default(),
            stage: Stage::End,
        };
        pass.stage = pass.layer(model, work, 0, &x)?;
        Ok(Some(pass))
    }

    /// Runs one slice; `None` when the row is done.
    pub(super) fn step(
        mut self,
        model: &Model,
        work: &PassWork,
        out: &mut TrainOut,
    ) -> Result<Option<Self>, TrainJobError> {
        let stage = std::mem::replace(&mut self.stage, Stage::End);
        self.stage = match stage {
            Stage::Up(layer) => self.up(model, work, layer)?,
            Stage::LmHead(head) => self.lm_head(model, work, out, head)?,
            Stage::Down(layer) => self.down(model, work, out, layer)?,
            Stage::End => Stage::End,
        };
        let more = !matches!(self.stage, Stage::End);
        Ok(more.then_some(self))
    }

    /// A layer on the way up; `x` is its input, which moves to where the layer is.
    fn layer(&self, model: &Model, work: &PassWork, layer: usize, x: &Tensor) -> Result<Stage> {
        let x = model.placement.moved(x, layer)?;
        let graph = work.trains_layers() && layer >= self.first_kept;
        let layer = LayerForward::begin(layer, x, work, graph)?;
        Ok(Stage::Up(Box::new(layer)))
    }

    fn up(
        &mut self,
        model: &Model,
        work: &PassWork,
        mut layer: Box<LayerForward>,
    ) -> Result<Stage> {
        if !layer.step(&self.chunks, model, &mut self.shared)? {
            return Ok(Stage::Up(layer));
        }
        let index = layer.layer();
        let (y, kept) = layer.end()?;
        if work.trains_layers() {
            self.kept.push(kept);
        }
        if index + 1 < model.weights.layers.len() {
            self.layer(model, work, index + 1, &y)
        } else {
            Ok(Stage::LmHead(LmHeadPass::new(y)))
        }
    }

    fn lm_head(
        &mut self,
        model: &Model,
        work: &PassWork,
        out: &mut TrainOut,
        mut head: LmHeadPass,
    ) -> Result<Stage, TrainJobError> {
        head.chunk(model, work, &self.positions, out)?;
        if !head.is_done(&self.positions) {
            return Ok(Stage::LmHead(head));
        }
        if !work.trains_layers() {
            return Ok(Stage::End);
        }
        let grad = head.gradient(model, &self.positions)?;
        Ok(self.begin_down(model, work, &grad)?)
    }

    fn down(
        &mut self,
        model: &Model,
        work: &PassWork,
        out: &mut TrainOut,
        mut layer: Box<LayerBackward>,
    ) -> Result<Stage> {
        if !layer.step(&self.chunks, model, &mut self.shared, out)? {
            return Ok(Stage::Down(layer));
        }
        match layer.end(model, &mut self.shared)? {
            Some(grad) => self.begin_down(model, work, &grad),
            None => Ok(Stage::End),
        }
    }

    /// Starts the backward pass of the topmost remaining layer. `grad` is the gradient of its output, and is moved to
    /// its device. Returns [`Stage::End`] if no layer is left.
    fn begin_down(&mut self, model: &Model, work: &PassWork, grad: &Tensor) -> Result<Stage> {
        let Some(kept) = self.kept.pop() else {
            return Ok(Stage::End);
        };
        let layer = self.kept.len();
        let grad = model.placement.moved(grad, layer)?;
        let layer = LayerBackward::begin(layer, kept, grad, work)?;
        Ok(layer.map_or(Stage::End, |layer| Stage::Down(Box::new(layer))))
    }
}
