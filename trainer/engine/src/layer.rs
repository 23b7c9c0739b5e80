//! One transformer layer: the only forward pass in this crate, for decoding and for training alike.
//!
//! Axes: `b` rows, `t` new positions, `d` hidden, `h` heads, `e` head size.
//! Nothing here works in place on its inputs: base weights are mapped read-only, and training
//! differentiates this function with respect to `x` and the LoRA tensors.

use tch::{Kind, TchError, Tensor};

use crate::attention::{self, PagePlan};
use crate::kv::LayerKv;
use crate::linear::{LayerAdapters, Linear};
use crate::model_config::{Activation, ModelConfig};
use crate::rope::RopeSlice;
use crate::torch::Result;

/// Base weights of one layer; norms in f32.
#[derive(Debug)]
pub struct LayerWeights {
    /// RMSNorm before attention, `[d]`.
    pub input_norm: Tensor,
    /// Queries, keys and values, `[(n_heads + 2 n_kv_heads) * e, d]`.
    pub qkv: Linear,
    pub o: Linear,
    /// RMSNorm of each query and each key head, `[n_heads + n_kv_heads, e]`, a scale of the queries multiplied in (Qwen3, Gemma 3).
    pub qk_norm: Option<Tensor>,
    /// RMSNorm of what attention adds, `[d]` (Gemma 3).
    pub attention_added_norm: Option<Tensor>,
    /// RMSNorm before the MLP, `[d]`.
    pub mlp_norm: Tensor,
    /// MLP gate and up.
    pub gate_up: Linear,
    pub down: Linear,
    /// RMSNorm of what the MLP adds, `[d]` (Gemma 3).
    pub mlp_added_norm: Option<Tensor>,
}

/// The positions that new positions attend to.
#[derive(Debug)]
pub enum Attention<'a> {
    /// Whole rows, in which positions attend only to one another; differentiable.
    Causal {
        /// Added to the scores, `[t, t]` or broadcastable to `[b, h, t, t]`, in the dtype of the weights;
        /// `None` is the plain triangle.
        mask: Option<&'a Tensor>,
    },
    /// The cached positions of the same sequence, then the new ones. For inference only; one row holds several
    /// sequences.
    Paged {
        /// This layer's pages, to which keys and values are written.
        kv: &'a mut LayerKv,
        /// Which rows are whose.
        plan: &'a PagePlan,
    },
}

/// Runs one layer.
///
/// The residual stream is f32 whatever the weights are: 60 sums rounded to bf16 would make a prompt that was
/// read at once and one that was read in parts two different prompts.
///
/// # Shapes
/// `x`: `[b, t, d]`, f32; returns the same. Paged rows have `b = 1`.
///
/// # Errors
/// What libtorch reports; with checked weights and reserved pages, only lack of memory.
pub fn layer_forward<'a>(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    x: &Tensor,
    rope: &RopeSlice,
    attention: Attention<'_>,
) -> Result<Tensor> {
    let adapters = adapters.into();
    let mid = attention_half(config, w, adapters, x, rope, attention)?;
    mlp_half(config, w, adapters, &mid)
}

/// The first half of [`layer_forward`]: `x` and what attention adds to it.
///
/// # Shapes
/// `x`: `[b, t, d]`, f32; returns the same. Paged rows have `b = 1`.
///
/// # Errors
/// As [`layer_forward`].
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
pub fn attention_half<'a>(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    x: &Tensor,
    rope: &RopeSlice,
    attention: Attention<'_>,
) -> Result<Tensor> {
    let adapters = adapters.into();
    let [q, k, v] = qkv(config, w, adapters, x, rope)?;
    let mixed = match attention {
        Attention::Causal { mask } => {
            let [q, k, v] = [
                q.f_transpose(1, 2)?,
                k.f_transpose(1, 2)?,
                v.f_transpose(1, 2)?,
            ];
            attention::whole([&q, &k, &v], mask)?
        }
        Attention::Paged { kv, plan } => attention::paged([&q, &k, &v], kv, plan)?,
    };
    x.f_add(&attention_out(config, w, adapters, &mixed)?)
}

/// The output of attention that is added to the residual stream.
///
/// # Shapes
/// `mixed`: `[b, t, heads * e]`, in the dtype of the weights. Returns `[b, t, d]`, in that dtype or f32.
///
/// # Errors
/// As [`layer_forward`].
pub fn attention_out<'a>(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    mixed: &Tensor,
) -> Result<Tensor> {
    let out = w.o.forward(mixed, adapters.into())?;
    added(config, w.attention_added_norm.as_ref(), out)
}

/// The second half of [`layer_forward`], in which positions do not meet: `x` may be any of them.
///
/// # Shapes
/// `x`: `[b, t, d]`, f32; returns the same.
///
/// # Errors
/// As [`layer_forward`].
pub fn mlp_half<'a>(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    x: &Tensor,
) -> Result<Tensor> {
    let adapters = adapters.into();
    let kind = w.gate_up.weight.kind()?;
    let normed = rms_norm(x, &w.mlp_norm, config.norm_eps, kind)?;
    let width = config.intermediate;
    let both = w.gate_up.forward(&normed, adapters)?;
    let [gate, up] = split(&both, [width, width], -1)?;
    let gate = match config.activation {
        Activation::Silu => gate.f_silu()?,
        Activation::GeluTanh => gate.f_gelu("tanh")?,
    };
    let out = w.down.forward(&gate.f_mul(&up)?, adapters)?;
    x.f_add(&added(config, w.mlp_added_norm.as_ref(), out)?)
}

/// The output of half a layer, as it is added to the residual stream. Some layers normalise it first.
fn added(config: &ModelConfig, norm: Option<&Tensor>, out: Tensor) -> Result<Tensor> {
    match norm {
        Some(weight) => rms_norm(&out, weight, config.norm_eps, Kind::Float),
        None => Ok(out),
    }
}

/// Root-mean-square normalisation over the last axis, computed in f32 and given in `kind`.
///
/// # Shapes
/// `x`: `[.., d]`, any float dtype. `weight`: `[d]`, f32. Returns `[.., d]` in `kind`.
///
/// # Errors
/// When `weight` does not fit the last axis.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64, kind: Kind) -> Result<Tensor> {
    x.f_to_kind(Kind::Float)?
        .f_rms_norm(weight.size(), Some(weight), eps)?
        .f_to_kind(kind)
}

/// Queries, keys and values of a layer's input, queries and keys rotated.
///
/// # Shapes
/// `x`: `[b, t, d]`, f32. Returns `[b, t, heads, e]` each, in the dtype of the weights.
///
/// # Errors
/// As [`layer_forward`].
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
pub fn qkv<'a>(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    x: &Tensor,
    rope: &RopeSlice,
) -> Result<[Tensor; 3]> {
    let (b, t, _) = x.size3()?;
    let (h, kv, e) = (config.n_heads, config.n_kv_heads, config.head_dim);
    let kind = w.qkv.weight.kind()?;
    let normed = rms_norm(x, &w.input_norm, config.norm_eps, kind)?;
    let all = w.qkv.forward(&normed, adapters.into())?;
    let [qk, v] = split(&all, [(h + kv) * e, kv * e], -1)?;
    let qk = qk.f_view([b, t, h + kv, e])?;
    let qk = match &w.qk_norm {
        Some(weight) => {
            let kind = qk.f_kind()?;
            let plain = qk.f_to_kind(Kind::Float)?;
            let plain = plain.f_rms_norm([e], None::<Tensor>, config.norm_eps)?;
            plain.f_mul(weight)?.f_to_kind(kind)?
        }
        None => qk,
    };
    let [q, k] = split(&rope.rotate(&qk)?, [h, kv], 2)?;
    Ok([q, k, v.f_view([b, t, kv, e])?])
}

/// Two views that are one in the backward pass, where two `narrow`s would each make a tensor of zeros.
fn split(x: &Tensor, widths: [i64; 2], axis: i64) -> Result<[Tensor; 2]> {
    let parts = x.f_split_with_sizes(widths, axis)?;
    <[Tensor; 2]>::try_from(parts)
        .map_err(|parts| TchError::Shape(format!("{} parts of a split in two", parts.len())))
}
