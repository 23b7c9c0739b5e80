//! One layer of a row's forward pass.

use tch::{TchError, Tensor};

use super::chunk::Chunk;
use super::compute::{LayerContext, OutputChunk, Projected};
use super::graph::leaf;
use super::net::AtPlaces;
use super::work::PassWork;
use crate::lora::LayerLora;
use crate::model::Model;
use crate::torch::Result;

#[derive(Debug)]
pub(super) struct LayerForward {
    layer: usize,
    /// The layer's input, `[1, t, d]`.
    x: Tensor,
    /// The layer's adapter; as variables if its graph is kept.
    lora: Option<LayerLora>,
    graph: bool,
    projected: Vec<Projected>,
    /// Keys and values of the whole row, `[1, kv_heads, t, e]`, once they are complete.
    keys: Option<[Tensor; 2]>,
    /// What a gated delta net has left so far.
    at_places: AtPlaces,
    outputs: Vec<OutputChunk>,
}

#[derive(Debug)]
pub(super) enum Kept {
    /// The layer's input. The layer is computed again from it.
    Input(Tensor),
    Graph(Box<LayerGraph>),
}

#[derive(Debug)]
pub(super) struct LayerGraph {
    pub(super) lora: LayerLora,
    /// Empty in a row of one chunk.
    pub(super) projected: Vec<Projected>,
    pub(super) outputs: Vec<OutputChunk>,
}

// === impl LayerForward ===

impl LayerForward {
    pub(super) fn begin(layer: usize, x: Tensor, work: &PassWork, graph: bool) -> Result<Self> {
        let lora = match work.adapter(layer) {
            Some(lora) if graph => Some(lora.try_map(leaf)?),
            Some(lora) => Some(lora.try_map(|param| Ok::<_, TchError>(param.shallow_clone()))?),
            None => None,
        };
        Ok(Self {
            layer,
            x,
            lora,
            graph,
            projected: Vec::new(),
            keys: None,
            at_places: AtPlaces::new(),
            outputs: Vec::new(),
        })
    }

    pub(super) fn layer(&self) -> usize {
        self.layer
    }

    /// Runs one chunk of one round. Returns true after the last one.
    pub(super) fn step(&mut self, chunks: &[Chunk], model: &Model) -> Result<bool> {
        let context = LayerContext {
            model,
            layer: self.layer,
            lora: self.lora.as_ref(),
            graph: self.graph,
        };
        if context.is_net() {
            let chunk = &chunks[self.outputs.len()];
            let output = context.net_output(chunk, &self.x, &self.at_places)?;
            if let (Some(edges), Some(cut)) = (&output.edges, &chunk.net) {
                cut.note(&edges.left, &mut self.at_places)?;
            }
            self.outputs.push(output);
            return Ok(self.outputs.len() == chunks.len());
        }
        if chunks.len() > 1 && self.keys.is_none() {
            let chunk = &chunks[self.projected.len()];
            self.projected.push(context.project(chunk, &self.x)?);
            if self.projected.len() == chunks.len() {
                self.keys = Some(whole(&self.projected)?);
            }
            return Ok(false);
        }
        let done = self.outputs.len();
        let given = self.keys.as_ref();
        let given = given.map(|keys| (&self.projected[done].qkv[0], keys));
        let output = context.output(&chunks[done], &self.x, given)?;
        self.outputs.push(output);
        Ok(self.outputs.len() == chunks.len())
    }

    /// The layer's output, `[1, t, d]`, and what the backward pass needs of it.
    pub(super) fn end(self) -> Result<(Tensor, Kept)> {
        let _guard = tch::no_grad_guard();
        let outputs: Vec<&Tensor> = self.outputs.iter().map(|output| &output.y).collect();
        let y = match outputs.as_slice() {
            [one] => one.f_detach()?,
            several => Tensor::f_cat(several, 1)?,
        };
        let kept = match self.lora {
            Some(lora) if self.graph => Kept::Graph(Box::new(LayerGraph {
                lora,
                projected: self.projected,
                outputs: self.outputs,
            })),
            Some(_) | None => Kept::Input(self.x),
        };
        Ok((y, kept))
    }
}

/// Keys and values of a row without their graph, `[1, kv_heads, t, e]`.
///
/// # Errors
/// What libtorch refuses.
pub(super) fn whole(chunks: &[Projected]) -> Result<[Tensor; 2]> {
    let _guard = tch::no_grad_guard();
    let all = |of: usize| {
        let parts: Vec<&Tensor> = chunks.iter().map(|chunk| &chunk.qkv[of]).collect();
        Tensor::f_cat(&parts, 2)
    };
    Ok([all(1)?, all(2)?])
}
