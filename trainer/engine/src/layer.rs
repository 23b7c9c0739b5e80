//! One transformer layer: the only forward pass in this crate, for decoding and for training alike.
//!
//! Axes: `b` rows, `t` new positions, `d` hidden, `h` heads, `e` head size.
//! Nothing here works in place on weights, which are mapped read-only. Training differentiates this function with
//! respect to `x` and the LoRA tensors. With [`Attention::Paged`], which is for inference, all layers add to the residual
//! stream in place.

use tch::{Kind, TchError, Tensor};

use crate::attention::{self, PagePlan};
use crate::kv::LayerKv;
use crate::linear::{LayerAdapters, Linear};
use crate::lora::FusedPart;
use crate::model_config::{Activation, ModelConfig};
use crate::rope::RopeSlice;
use crate::torch::Result;

/// Base weights of one layer; norms in f32, but for those of heads.
#[derive(Debug)]
pub struct LayerWeights {
    /// RMSNorm before attention, `[d]`.
    pub input_norm: Tensor,
    /// Queries, keys and values, `[(n_heads + 2 n_kv_heads) * e, d]`.
    pub qkv: Linear,
    pub o: Linear,
    /// RMSNorm of each query and each key head, `[n_heads + n_kv_heads, e]`, a scale of the queries multiplied in (Qwen3,
    /// Gemma 3), in the engine's dtype.
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

impl LayerWeights {
    /// The projections of its maps.
    pub(crate) fn maps(&self) -> [&[FusedPart]; 4] {
        [&self.qkv, &self.o, &self.gate_up, &self.down].map(|map| map.parts.as_slice())
    }
}

/// Runs one layer.
///
/// The residual stream is f32 whatever the weights are: 60 sums rounded to bf16 would make a prompt that was
/// read at once and one that was read in parts two different prompts.
///
/// # Shapes
/// `x`: `[b, t, d]`, f32; returns the same, which is `x` itself for paged rows. They have `b = 1`.
///
/// # Errors
/// What libtorch reports; with checked weights and reserved pages, only lack of memory.
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
pub fn layer_forward<'a>(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    x: &Tensor,
    rope: &RopeSlice,
    attention: Attention<'_>,
) -> Result<Tensor> {
    let adapters = adapters.into();
    match attention {
        Attention::Causal { mask } => {
            let [q, k, v] = qkv(config, w, adapters, x, rope)?.map(|heads| heads.f_transpose(1, 2));
            let mixed = attention::whole([&q?, &k?, &v?], mask)?;
            let mid = x.f_add(&attention_out(config, w, adapters, &mixed)?)?;
            mlp_half(config, w, adapters, &mid)
        }
        Attention::Paged { kv, plan } => {
            let [q, new] = qkv_in_place(config, w, adapters, x, rope)?;
            let mixed = attention::paged([&q, &new], kv, plan)?;
            let mut x = x.shallow_clone();
            let norm = w.attention_added_norm.as_ref();
            add_to(config, &mut x, &mixed, (&w.o, norm), adapters)?;
            let gated = gated(config, w, adapters, &x)?;
            let norm = w.mlp_added_norm.as_ref();
            add_to(config, &mut x, &gated, (&w.down, norm), adapters)?;
            Ok(x)
        }
    }
}

/// Adds the output of half a layer, attention or MLP, to the residual stream in place. `x` is the input of its last map.
fn add_to(
    config: &ModelConfig,
    sum: &mut Tensor,
    x: &Tensor,
    (linear, norm): (&Linear, Option<&Tensor>),
    adapters: LayerAdapters<'_>,
) -> Result<()> {
    if norm.is_none() && linear.add_to(sum, x, adapters)? {
        return Ok(());
    }
    let out = added(config, norm, linear.forward(x, adapters)?)?;
    let _sum = sum.f_add_(&out)?;
    Ok(())
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
    let gated = gated(config, w, adapters, x)?;
    let out = w.down.forward(&gated, adapters)?;
    x.f_add(&added(config, w.mlp_added_norm.as_ref(), out)?)
}

/// The input of the MLP's last map.
fn gated(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: LayerAdapters<'_>,
    x: &Tensor,
) -> Result<Tensor> {
    let kind = w.gate_up.weight.kind()?;
    let normed = rms_norm(x, &w.mlp_norm, config.norm_eps, kind)?;
    let width = config.intermediate;
    let both = w.gate_up.forward(&normed, adapters)?;
    let [gate, up] = split(&both, [width, width], -1)?;
    let gate = match config.activation {
        Activation::Silu => gate.f_silu()?,
        Activation::GeluTanh => gate.f_gelu("tanh")?,
    };
    gate.f_mul(&up)
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
    let normed = in_kind(x, Kind::Float)?.f_rms_norm(weight.size(), Some(weight), eps)?;
    in_kind(&normed, kind)
}

/// Converts a tensor. One that has the dtype already costs no call of libtorch.
fn in_kind(x: &Tensor, kind: Kind) -> Result<Tensor> {
    if x.f_kind()? == kind {
        return Ok(x.shallow_clone());
    }
    x.f_to_kind(kind)
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
    let (h, kv) = (config.n_heads, config.n_kv_heads);
    let [_, qk, v] = projected(config, w, adapters.into(), x, rope.has_norms)?;
    let [q, k] = split(&rope.rotate(&qk)?, [h, kv], 2)?;
    Ok([q, k, v])
}

/// As [`qkv`], inference only: queries, `[b, t, heads, e]`, and keys beside values, `[b, t, 2 * kv_heads, e]`.
fn qkv_in_place(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: LayerAdapters<'_>,
    x: &Tensor,
    rope: &RopeSlice,
) -> Result<[Tensor; 2]> {
    let (h, kv) = (config.n_heads, config.n_kv_heads);
    let [all, qk, _] = projected(config, w, adapters, x, rope.has_norms)?;
    rope.rotate_into(&qk, &mut all.f_narrow(2, 0, h + kv)?)?;
    split(&all, [h, 2 * kv], 2)
}

/// The products that a layer begins with, `[b, t, heads, e]` each: all heads; queries and keys, normalised if the model does that; values.
/// If `angles_have_norms`, the rotation multiplies by the weights of the norms, so that they are left out here.
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
fn projected(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: LayerAdapters<'_>,
    x: &Tensor,
    angles_have_norms: bool,
) -> Result<[Tensor; 3]> {
    let (b, t, _) = x.size3()?;
    let (h, kv, e) = (config.n_heads, config.n_kv_heads, config.head_dim);
    let kind = w.qkv.weight.kind()?;
    let normed = rms_norm(x, &w.input_norm, config.norm_eps, kind)?;
    let all = w.qkv.forward(&normed, adapters)?;
    let all = all.f_view([b, t, h + 2 * kv, e])?;
    let [qk, v] = split(&all, [h + kv, kv], 2)?;
    let qk = match &w.qk_norm {
        Some(weight) => {
            let plain = qk.f_rms_norm([e], None::<Tensor>, config.norm_eps)?;
            if angles_have_norms {
                plain
            } else {
                plain.f_mul(weight)?
            }
        }
        None => qk,
    };
    Ok([all, qk, v])
}

/// Two views of a tensor. In the backward pass they are one tensor, where two `narrow`s would each make one of zeros.
fn split(x: &Tensor, widths: [i64; 2], axis: i64) -> Result<[Tensor; 2]> {
    let parts = x.f_split_with_sizes(widths, axis)?;
    <[Tensor; 2]>::try_from(parts)
        .map_err(|parts| TchError::Shape(format!("{} parts of a split in two", parts.len())))
}
