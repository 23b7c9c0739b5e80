//! One transformer layer: the only forward pass in this crate, for decoding and for training alike.
//!
//! Axes: `b` rows, `t` new positions, `s` positions attended to, `d` hidden, `h` heads, `e` head size.
//! Nothing here works in place on its inputs: base weights are mapped read-only, and training
//! differentiates this function with respect to `x` and the LoRA tensors.

use tch::{Kind, TchError, Tensor};

use crate::cache::LayerCache;
use crate::family::Family;
use crate::lora::{LayerLora, Projection};
use crate::rope::RopeSlice;

/// Base weights of one layer: `[out, in]` as PyTorch's `Linear`, in the engine's dtype; norms in f32.
#[derive(Debug)]
pub struct LayerWeights {
    /// RMSNorm before attention, `[d]`.
    pub input_norm: Tensor,
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
    /// Attention output.
    pub o: Tensor,
    /// Bias of q (Qwen2).
    pub q_bias: Option<Tensor>,
    /// Bias of k.
    pub k_bias: Option<Tensor>,
    /// Bias of v.
    pub v_bias: Option<Tensor>,
    /// Bias of o.
    pub o_bias: Option<Tensor>,
    /// RMSNorm of each query head, `[e]` (Qwen3).
    pub q_norm: Option<Tensor>,
    /// RMSNorm of each key head, `[e]`.
    pub k_norm: Option<Tensor>,
    /// RMSNorm before the MLP, `[d]`.
    pub post_norm: Tensor,
    /// MLP gate.
    pub gate: Tensor,
    /// MLP up.
    pub up: Tensor,
    /// MLP down.
    pub down: Tensor,
}

/// What the new positions attend to.
#[derive(Debug)]
pub enum Attention<'a> {
    /// Themselves alone, whole rows at once; differentiable.
    Causal {
        /// Added to the scores, `[t, t]` or broadcastable to `[b, h, t, t]`, in the dtype of the weights;
        /// `None` is the plain triangle.
        mask: Option<&'a Tensor>,
    },
    /// What is cached, then themselves; inference only, one row.
    Cached {
        /// This layer's cache, to which keys and values are appended.
        kv: &'a mut LayerCache,
        /// Positions already cached.
        len: usize,
        /// Added to the scores, `[t, len + t]`, in the dtype of the weights; needed where both `len` and `t - 1` are above 0.
        mask: Option<&'a Tensor>,
    },
}

/// Runs one layer.
///
/// The residual stream is f32 whatever the weights are: 60 sums rounded to bf16 would make a prompt that was
/// read at once and one that was read in parts two different prompts.
///
/// # Shapes
/// `x`: `[b, t, d]`, f32; returns the same.
///
/// # Errors
/// What libtorch reports; with checked weights and a cache that was reserved, only lack of memory.
pub fn layer_forward(
    family: &Family,
    w: &LayerWeights,
    lora: Option<&LayerLora>,
    x: &Tensor,
    rope: &RopeSlice,
    attention: Attention<'_>,
) -> Result<Tensor, TchError> {
    let mid = attention_half(family, w, lora, x, rope, attention)?;
    mlp_half(family, w, lora, &mid)
}

/// The first half of [`layer_forward`]: `x` and what attention adds to it.
///
/// # Errors
/// As [`layer_forward`].
pub fn attention_half(
    family: &Family,
    w: &LayerWeights,
    lora: Option<&LayerLora>,
    x: &Tensor,
    rope: &RopeSlice,
    attention: Attention<'_>,
) -> Result<Tensor, TchError> {
    let normed = rms_norm(x, &w.input_norm, family.norm_eps, w.q.f_kind()?)?;
    x.f_add(&attend(
        family,
        w,
        &Adapted { lora },
        &normed,
        rope,
        attention,
    )?)
}

/// The second half of [`layer_forward`], in which positions do not meet: `x` may be any of them.
///
/// # Errors
/// As [`layer_forward`].
pub fn mlp_half(
    family: &Family,
    w: &LayerWeights,
    lora: Option<&LayerLora>,
    x: &Tensor,
) -> Result<Tensor, TchError> {
    let normed = rms_norm(x, &w.post_norm, family.norm_eps, w.gate.f_kind()?)?;
    x.f_add(&mlp(w, &Adapted { lora }, &normed)?)
}

/// Root-mean-square normalisation over the last axis, computed in f32 and given in `kind`.
///
/// # Errors
/// When `weight` does not fit the last axis.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64, kind: Kind) -> Result<Tensor, TchError> {
    x.f_to_kind(Kind::Float)?
        .f_rms_norm(weight.size(), Some(weight), eps)?
        .f_to_kind(kind)
}

/// The projections with whatever adapter stands beside them.
struct Adapted<'a> {
    lora: Option<&'a LayerLora>,
}

impl Adapted<'_> {
    fn project(
        &self,
        which: Projection,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor, TchError> {
        let y = x.f_linear(weight, bias)?;
        match self.lora {
            Some(lora) => lora.add(which, x, y),
            None => Ok(y),
        }
    }
}

#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
fn attend(
    family: &Family,
    w: &LayerWeights,
    adapted: &Adapted<'_>,
    x: &Tensor,
    rope: &RopeSlice,
    attention: Attention<'_>,
) -> Result<Tensor, TchError> {
    let (b, t, _) = x.size3()?;
    let e = family.head_dim;
    let q = adapted.project(Projection::Q, x, &w.q, w.q_bias.as_ref())?;
    let k = adapted.project(Projection::K, x, &w.k, w.k_bias.as_ref())?;
    let v = adapted.project(Projection::V, x, &w.v, w.v_bias.as_ref())?;
    let q = q.f_view([b, t, family.n_heads, e])?;
    let k = k.f_view([b, t, family.n_kv_heads, e])?;
    let v = v.f_view([b, t, family.n_kv_heads, e])?.f_transpose(1, 2)?;
    let norm = |y: Tensor, weight: &Option<Tensor>| match weight {
        Some(weight) => rms_norm(&y, weight, family.norm_eps, y.f_kind()?),
        None => Ok(y),
    };
    let q = rope.rotate(&norm(q, &w.q_norm)?)?.f_transpose(1, 2)?;
    let k = rope.rotate(&norm(k, &w.k_norm)?)?.f_transpose(1, 2)?;
    let mixed = match attention {
        Attention::Causal { mask } => sdpa(&q, &k, &v, mask, mask.is_none())?,
        Attention::Cached { kv, len, mask } => {
            let (k, v) = kv.append(&k, &v, len)?;
            if t == 1 {
                decode(family, &q, &k, &v)?
            } else {
                sdpa(&q, &k, &v, mask, mask.is_none())?
            }
        }
    };
    let mixed = mixed
        .f_transpose(1, 2)?
        .f_reshape([b, t, family.n_heads * e])?;
    adapted.project(Projection::O, &mixed, &w.o, w.o_bias.as_ref())
}

fn sdpa(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    causal: bool,
) -> Result<Tensor, TchError> {
    let grouped = q.size4()?.1 != k.size4()?.1;
    Tensor::f_scaled_dot_product_attention(q, k, v, mask, 0.0, causal, None, grouped)
}

/// One query position: the query heads that share a key head are laid out as if they were
/// positions, so that the fused kernel runs without repeating keys and values.
fn decode(family: &Family, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor, TchError> {
    let e = family.head_dim;
    let group = family.n_heads / family.n_kv_heads;
    let q = q.f_reshape([1, family.n_kv_heads, group, e])?;
    sdpa(&q, k, v, None, false)?.f_reshape([1, family.n_heads, 1, e])
}

fn mlp(w: &LayerWeights, adapted: &Adapted<'_>, x: &Tensor) -> Result<Tensor, TchError> {
    let gate = adapted
        .project(Projection::Gate, x, &w.gate, None)?
        .f_silu()?;
    let up = adapted.project(Projection::Up, x, &w.up, None)?;
    adapted.project(Projection::Down, &gate.f_mul(&up)?, &w.down, None)
}
