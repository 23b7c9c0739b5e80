//! One layer of a row's backward pass: vector-Jacobian products of its chunks. Chunks without a graph are computed
//! again.

use tch::{Kind, TchError, Tensor};

use super::chunk::Chunk;
use super::compute::{LayerContext, OutputChunk, Projected};
use super::forward::{Kept, LayerGraph, whole};
use super::graph::leaf;
use super::net::AtPlaces;
use super::work::{PassWork, TrainOut};
use crate::aten::vjp;
use crate::lora::{LayerLora, Projection};
use crate::model::Model;
use crate::pack::to_i64;
use crate::torch::Result;

const FIRST: [Projection; 3] = [Projection::Q, Projection::K, Projection::V];
const SECOND: [Projection; 4] = [
    Projection::O,
    Projection::Gate,
    Projection::Up,
    Projection::Down,
];

#[derive(Debug)]
pub(super) struct LayerBackward {
    layer: usize,
    /// Which of all parameters is the layer's first.
    pub(super) first_param: usize,
    /// The gradient by the layer's output, `[1, t, d]`.
    pub(super) grad: Tensor,
    pub(super) lora: LayerLora,
    /// The layer's input, `[1, t, d]`, if the layer must be computed again.
    pub(super) x: Option<Tensor>,
    projected: Vec<Projected>,
    keys: Option<[Tensor; 2]>,
    /// The gradients by keys and values of the whole row, `[1, kv_heads, t, e]`, f32; `None` in a row of one chunk.
    key_grads: Option<[Tensor; 2]>,
    /// The gradients by the queries of the finished chunks, `[1, heads, c, e]` each.
    query_grads: Vec<Tensor>,
    pub(super) outputs: std::vec::IntoIter<OutputChunk>,
    pub(super) n_outputs_done: usize,
    pub(super) n_projected_done: usize,
    /// The gradients by the layer's input, chunk by chunk, `[1, c, d]` each.
    pub(super) input_grads: Vec<Tensor>,
    /// What chunks of a gated delta net leave, if the layer must be computed again.
    pub(super) at_places: AtPlaces,
    /// The gradients by what earlier chunks have left.
    pub(super) grads_at_places: AtPlaces,
}

// === impl LayerBackward ===

impl LayerBackward {
    /// `None` for a layer without an adapter, which a run does not have.
    pub(super) fn begin(
        layer: usize,
        kept: Kept,
        grad: Tensor,
        work: &PassWork,
    ) -> Result<Option<Self>> {
        let (graph, x) = match kept {
            Kept::Graph(graph) => (*graph, None),
            Kept::Input(x) => {
                let Some(lora) = work.adapter(layer) else {
                    return Ok(None);
                };
                let graph = LayerGraph {
                    lora: lora.try_map(leaf)?,
                    projected: Vec::new(),
                    outputs: Vec::new(),
                };
                (graph, Some(x))
            }
        };
        Ok(Some(Self {
            layer,
            first_param: work
                .lora
                .as_ref()
                .map_or(0, |lora| lora.n_params_before(layer)),
            grad,
            lora: graph.lora,
            x,
            projected: graph.projected,
            keys: None,
            key_grads: None,
            query_grads: Vec::new(),
            outputs: graph.outputs.into_iter(),
            n_outputs_done: 0,
            n_projected_done: 0,
            input_grads: Vec::new(),
            at_places: AtPlaces::new(),
            grads_at_places: AtPlaces::new(),
        }))
    }

    /// Runs one chunk of one round. Returns true after the last one.
    pub(super) fn step(
        &mut self,
        chunks: &[Chunk],
        model: &Model,
        out: &mut TrainOut,
    ) -> Result<bool> {
        if self.context(model).is_net() {
            return self.net_step(chunks, model, out);
        }
        let several = chunks.len() > 1;
        if several && self.projected.len() < chunks.len() {
            let chunk = &chunks[self.projected.len()];
            let projected = self.context(model).project(chunk, self.x()?)?;
            self.projected.push(projected);
            return Ok(false);
        }
        if self.n_outputs_done < chunks.len() {
            self.second(&chunks[self.n_outputs_done], several, model, out)?;
            self.n_outputs_done += 1;
            return Ok(!several);
        }
        self.first(&chunks[self.n_projected_done], out)?;
        self.n_projected_done += 1;
        Ok(self.n_projected_done == chunks.len())
    }

    /// The gradient by the layer's input, `[1, t, d]`; `None` in the first layer.
    pub(super) fn end(self) -> Result<Option<Tensor>> {
        match self.input_grads.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.shallow_clone())),
            several => Tensor::f_cat(several, 1).map(Some),
        }
    }

    pub(super) fn context<'a>(&'a self, model: &'a Model) -> LayerContext<'a> {
        LayerContext {
            model,
            layer: self.layer,
            lora: Some(&self.lora),
            graph: true,
        }
    }

    /// There unless the graph is.
    pub(super) fn x(&self) -> Result<&Tensor> {
        let gone = || TchError::Torch("a layer's graph was kept, but not whole".into());
        self.x.as_ref().ok_or_else(gone)
    }

    fn second(
        &mut self,
        chunk: &Chunk,
        several: bool,
        model: &Model,
        out: &mut TrainOut,
    ) -> Result<()> {
        if several && self.key_grads.is_none() {
            self.begin_keys()?;
        }
        let output = if let Some(kept) = self.outputs.next() {
            kept
        } else {
            let q = self.projected.get(self.n_outputs_done).map(|p| &p.qkv[0]);
            let given = q.zip(self.keys.as_ref());
            self.context(model).output(chunk, self.x()?, given)?
        };
        let both = [FIRST.as_slice(), &SECOND].concat();
        let which = if several { &SECOND } else { both.as_slice() };
        let params = params(&self.lora, self.first_param, which);
        let mut leaves: Vec<&Tensor> = params.iter().map(|(_, param)| *param).collect();
        leaves.extend(&output.input);
        // Below the first layer nothing is trained but the projections themselves.
        let seen = output.seen.as_ref().filter(|_| self.first_is_trained());
        leaves.extend(seen.into_iter().flatten());
        if leaves.is_empty() {
            return Ok(());
        }
        let mut grads = vjp(&[(&output.y, &chunk.of(&self.grad, 1)?)], &leaves)?;
        if seen.is_some() {
            let (v, k, q) = (grads.pop(), grads.pop(), grads.pop());
            self.query_grads.extend(q);
            self.add_key_grads(chunk, [k, v])?;
        }
        if output.input.is_some() {
            self.input_grads.extend(grads.pop());
        }
        add(&params, &grads, out)
    }

    /// The first round of a chunk, once all that saw its keys are done.
    fn first(&mut self, chunk: &Chunk, out: &mut TrainOut) -> Result<()> {
        let at = self.n_projected_done;
        let Projected { input, qkv } = &self.projected[at];
        let params = params(&self.lora, self.first_param, &FIRST);
        let mut leaves: Vec<&Tensor> = params.iter().map(|(_, param)| *param).collect();
        leaves.extend(input);
        let (Some([k, v]), Some(q)) = (&self.key_grads, self.query_grads.get(at)) else {
            return Ok(());
        };
        let (k, v) = (chunk.of(k, 2)?, chunk.of(v, 2)?);
        let mut pairs: Vec<(&Tensor, &Tensor)> = qkv.iter().zip([q, &k, &v]).collect();
        // In the first layer a side without an adapter has no graph.
        pairs.retain(|(y, _)| y.requires_grad());
        let mut grads = vjp(&pairs, &leaves)?;
        if input.is_some()
            && let Some(grad) = grads.pop()
        {
            let sum = &mut self.input_grads[at];
            *sum = sum.f_add(&grad)?;
        }
        add(&params, &grads, out)
    }

    fn first_is_trained(&self) -> bool {
        self.layer > 0 || FIRST.iter().any(|&which| self.lora.get(which).is_some())
    }

    fn begin_keys(&mut self) -> Result<()> {
        let keys = whole(&self.projected)?;
        let zeros = |t: &Tensor| Tensor::f_zeros(t.size(), (Kind::Float, t.device()));
        self.key_grads = Some([zeros(&keys[0])?, zeros(&keys[1])?]);
        self.keys = self.x.is_some().then_some(keys);
        Ok(())
    }

    fn add_key_grads(&self, chunk: &Chunk, grads: [Option<Tensor>; 2]) -> Result<()> {
        let sums = self.key_grads.iter().flatten();
        for (grad, sum) in grads.into_iter().flatten().zip(sums) {
            let mut from = 0;
            for span in chunk.visible() {
                let len = to_i64(span.len);
                let mut place = sum.f_narrow(2, to_i64(span.start), len)?;
                let _ = place.f_add_(&grad.f_narrow(2, from, len)?)?;
                from += len;
            }
        }
        Ok(())
    }
}

pub(super) fn params<'a>(
    lora: &'a LayerLora,
    first: usize,
    which: &[Projection],
) -> Vec<(usize, &'a Tensor)> {
    let mut next = first;
    let mut found = Vec::new();
    for projection in Projection::ALL {
        let Some(pair) = lora.get(projection) else {
            continue;
        };
        if which.contains(&projection) {
            found.extend([(next, &pair.a), (next + 1, &pair.b)]);
        }
        next += 2;
    }
    found
}

pub(super) fn add(params: &[(usize, &Tensor)], grads: &[Tensor], out: &mut TrainOut) -> Result<()> {
    for (&(index, _), grad) in params.iter().zip(grads) {
        let _ = out.gradients[index].f_add_(&grad.f_to_kind(Kind::Float)?)?;
    }
    Ok(())
}
