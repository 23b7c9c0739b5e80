//! One layer, a chunk of places at a time, with or without a graph for the way back.
//!
//! Places meet only where keys are gathered. So a layer is computed in two rounds: queries, keys and values of
//! every chunk, then all the rest of every chunk, which sees them as given. On the way back the rest comes
//! first, and leaves the gradients by queries, keys and values that the first round then takes further. A row of one
//! chunk does both at once.

use tch::{TchError, Tensor};

use super::chunk::{Chunk, Sight};
use super::graph::{leaf, with_grad};
use super::net::{AtPlaces, NetEdges};
use crate::attention;
use crate::delta::DeltaPast;
use crate::layer::{self, AttentionWeights, LayerWeights, Mixer, mlp_half};
use crate::lora::LayerLora;
use crate::model::Model;
use crate::rope::RopeSlice;
use crate::torch::Result;

#[derive(Debug, Clone, Copy)]
pub(super) struct LayerContext<'a> {
    pub(super) model: &'a Model,
    pub(super) layer: usize,
    /// Variables, where `graph` is on.
    pub(super) lora: Option<&'a LayerLora>,
    pub(super) graph: bool,
}

/// Queries, keys and values of a chunk: the first round.
#[derive(Debug)]
pub(super) struct Projected {
    /// The layer's input as a variable, `[1, c, d]`; `None` without a graph, and in the first layer, below
    /// which nothing is trained.
    pub(super) input: Option<Tensor>,
    /// `q`: `[1, heads, c, e]`, with gates twice the heads; `k` and `v`: `[1, kv_heads, c, e]`; all in the engine's dtype.
    pub(super) qkv: [Tensor; 3],
}

/// The layer's output for a chunk: the second round.
#[derive(Debug)]
pub(super) struct OutputChunk {
    /// As [`Projected::input`].
    pub(super) input: Option<Tensor>,
    /// The queries, and the keys and values that the chunk sees, `[1, kv_heads, s, e]`, as variables. `None` without a
    /// graph, and if both rounds are one.
    pub(super) seen: Option<[Tensor; 3]>,
    /// Of a gated delta net.
    pub(super) edges: Option<NetEdges>,
    /// `[1, c, d]`, f32.
    pub(super) y: Tensor,
}

// === impl LayerContext ===

impl LayerContext<'_> {
    /// Queries, keys and values of a chunk of the layer's input `x`, `[1, t, d]`, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(super) fn project(&self, chunk: &Chunk, x: &Tensor) -> Result<Projected> {
        self.with(|| {
            let (x, input) = self.input(chunk, x)?;
            let qkv = self.qkv(&x, self.rope(chunk)?)?;
            Ok(Projected { input, qkv })
        })
    }

    /// The output of a chunk. `given` are its own queries and the whole row's keys and values, `[1, kv_heads, t, e]`;
    /// `None` when the chunk is the row.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(super) fn output(
        &self,
        chunk: &Chunk,
        x: &Tensor,
        given: Option<(&Tensor, &[Tensor; 2])>,
    ) -> Result<OutputChunk> {
        self.with(|| {
            let (x, input) = self.input(chunk, x)?;
            let (qkv, seen) = match given {
                None => (self.qkv(&x, self.rope(chunk)?)?, None),
                Some((q, [k, v])) => {
                    let qkv = [q.f_detach()?, chunk.gather(k)?, chunk.gather(v)?];
                    if self.graph {
                        let [q, k, v] = &qkv;
                        let [q, k, v] = [leaf(q)?, leaf(k)?, leaf(v)?];
                        let handles = [&q, &k, &v].map(Tensor::shallow_clone);
                        (handles, Some([q, k, v]))
                    } else {
                        (qkv, None)
                    }
                }
            };
            Ok(OutputChunk {
                input,
                seen,
                edges: None,
                y: self.rest(&x, &self.attend(chunk, &qkv)?)?,
            })
        })
    }

    /// The output of a chunk of a gated delta net, which goes on from what is `known` of earlier places.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(super) fn net_output(
        &self,
        chunk: &Chunk,
        x: &Tensor,
        known: &AtPlaces,
    ) -> Result<OutputChunk> {
        let (Mixer::Delta(net), Some(cut)) = (&self.weights().mixer, &chunk.net) else {
            return Err(of_another_kind());
        };
        let past = cut.past(net, known, x)?;
        self.with(|| {
            let (x, input) = self.input(chunk, x)?;
            let is_variable = self.graph && cut.has_given();
            let (past, given) = if is_variable {
                let (states, tails) = (leaf(&past.states)?, leaf(&past.tails)?);
                let given = [states.shallow_clone(), tails.shallow_clone()];
                (DeltaPast { states, tails }, Some(given))
            } else {
                (past, None)
            };
            let config = &self.model.config;
            let kind = net.input.weight.kind()?;
            let normed = layer::input_normed(config, self.weights(), kind, &x)?;
            let plan = cut.plan.of(&self.model.placement, self.layer)?;
            let (mixed, left) = net.mix(&normed, self.lora.into(), &past, plan, config.norm_eps)?;
            let out = layer::mixed_out(config, self.weights(), self.lora, &mixed)?;
            Ok(OutputChunk {
                input,
                seen: None,
                edges: Some(NetEdges { given, left }),
                y: self.rest(&x, &out)?,
            })
        })
    }

    /// The rest of a layer, from its input and what its mixer adds.
    fn rest(&self, x: &Tensor, out: &Tensor) -> Result<Tensor> {
        let mid = x.f_add(out)?;
        mlp_half(&self.model.config, self.weights(), self.lora, &mid)
    }

    /// Whether the layer is a gated delta net.
    pub(super) fn is_net(&self) -> bool {
        matches!(self.weights().mixer, Mixer::Delta(_))
    }

    fn attention(&self) -> Result<&AttentionWeights> {
        match &self.weights().mixer {
            Mixer::Attention(attention) => Ok(attention),
            Mixer::Delta(_) => Err(of_another_kind()),
        }
    }

    fn with<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.graph {
            with_grad(f)
        } else {
            let _guard = tch::no_grad_guard();
            f()
        }
    }

    fn rope<'a>(&self, chunk: &'a Chunk) -> Result<&'a RopeSlice> {
        let ropes = chunk.ropes.of(self.layer)?;
        ropes.of(&self.model.placement, self.layer)
    }

    fn weights(&self) -> &LayerWeights {
        &self.model.weights.layers[self.layer]
    }

    fn input(&self, chunk: &Chunk, x: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let x = chunk.of(x, 1)?;
        if !self.graph || self.layer == 0 {
            return Ok((x, None));
        }
        let x = leaf(&x)?;
        Ok((x.shallow_clone(), Some(x)))
    }

    fn qkv(&self, x: &Tensor, rope: &RopeSlice) -> Result<[Tensor; 3]> {
        let (config, mixer) = (&self.model.config, self.attention()?);
        let [q, k, v] = layer::qkv(config, self.weights(), mixer, self.lora, x, rope)?;
        Ok([
            q.f_transpose(1, 2)?,
            k.f_transpose(1, 2)?,
            v.f_transpose(1, 2)?,
        ])
    }

    /// The output of attention for the residual stream, `[1, c, d]`.
    fn attend(&self, chunk: &Chunk, qkv: &[Tensor; 3]) -> Result<Tensor> {
        let device = self.model.placement.of(self.layer);
        let window = *self.model.windows.of(self.layer)?;
        let [q, k, v] = qkv;
        let (q, gate) = layer::without_gate(&self.model.config, q)?;
        let qkv = [&q, k, v];
        let mixed = match chunk.sight(window, self.model, device)? {
            Sight::Samples(n) => attention::samples(qkv, n)?,
            Sight::Parts(parts) => attention::in_parts(qkv, &parts)?,
            Sight::Mask(mask) => attention::whole(qkv, Some(&mask))?,
        };
        let mixed = layer::gated_by(mixed, gate)?;
        layer::mixed_out(&self.model.config, self.weights(), self.lora, &mixed)
    }
}

fn of_another_kind() -> TchError {
    TchError::Torch("a layer was computed as one of another kind".into())
}
