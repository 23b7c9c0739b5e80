//! One transformer layer: the only forward pass in this crate, for decoding and for training alike.
//!
//! Axes: `b` rows, `t` new positions, `d` hidden, `h` heads, `e` head size.
//! Nothing here works in place on weights, which are mapped read-only. Training differentiates this function with
//! respect to `x` and the LoRA tensors. With [`Attention::Paged`], which is for inference, all layers add to the residual
//! stream in place.

use tch::{Kind, TchError, Tensor};

use crate::attention::{self, PagePlan};
use crate::delta::{DeltaNet, DeltaPlan};
use crate::kv::{LayerKv, LayerStates};
use crate::linear::{LayerAdapters, Linear};
use crate::lora::FusedPart;
use crate::model_config::{Activation, ModelConfig};
use crate::rope::RopeSlice;
use crate::torch::{Result, split};

/// Base weights of one layer; norms in f32, but for those of heads.
#[derive(Debug)]
pub struct LayerWeights {
    /// RMSNorm before attention, `[d]`.
    pub input_norm: Tensor,
    pub mixer: Mixer,
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

/// The first half of a layer, in which positions meet.
#[derive(Debug)]
pub enum Mixer {
    Attention(AttentionWeights),
    Delta(DeltaNet),
}

/// Base weights of attention.
#[derive(Debug)]
pub struct AttentionWeights {
    /// Queries, keys and values, `[(n_heads + 2 n_kv_heads) * e, d]`; each query head is `2 e` wide where its gate is behind it.
    pub qkv: Linear,
    pub o: Linear,
    /// RMSNorm of each query and each key head, `[n_heads + n_kv_heads, e]`, a scale of the queries multiplied in (Qwen3,
    /// Qwen3.5, Gemma 3), in the engine's dtype.
    pub qk_norm: Option<Tensor>,
}

/// The positions that new positions attend to, or the states that they go on from.
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
    /// For a gated delta net.
    Delta {
        /// Which rows go on from which.
        plan: &'a DeltaPlan,
        /// This layer's states, which rows go on from and which are written; as with pages. Without, rows are whole; differentiable.
        states: Option<&'a mut LayerStates>,
    },
}

impl LayerWeights {
    /// The projections of its maps.
    pub(crate) fn maps(&self) -> [&[FusedPart]; 4] {
        let [first, last] = match &self.mixer {
            Mixer::Attention(attention) => [&attention.qkv, &attention.o],
            Mixer::Delta(net) => [&net.input, &net.out],
        };
        [first, last, &self.gate_up, &self.down].map(|map| map.parts.as_slice())
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
    let (mixed, out) = match (&w.mixer, attention) {
        (Mixer::Attention(mixer), Attention::Causal { mask }) => {
            let [q, k, v] = qkv(config, w, mixer, adapters, x, rope)?;
            let [q, k, v] = [q, k, v].map(|heads| heads.f_transpose(1, 2));
            let (q, gate) = without_gate(config, &q?)?;
            let mixed = attention::whole([&q, &k?, &v?], mask)?;
            let mid = x.f_add(&mixed_out(config, w, adapters, &gated_by(mixed, gate)?)?)?;
            return mlp_half(config, w, adapters, &mid);
        }
        (Mixer::Attention(mixer), Attention::Paged { kv, plan }) => {
            let ([q, new], gate) = qkv_in_place(config, w, mixer, adapters, x, rope)?;
            let mixed = attention::paged([&q, &new], kv, plan)?;
            (gated_by(mixed, gate)?, &mixer.o)
        }
        (Mixer::Delta(net), Attention::Delta { plan, states }) => {
            let normed = input_normed(config, w, net.input.weight.kind()?, x)?;
            let past = match &states {
                Some(states) => states.past(plan)?,
                None => net.beginning(x.device())?,
            };
            let (mixed, left) = net.mix(&normed, adapters, &past, plan, config.norm_eps)?;
            let Some(states) = states else {
                let mid = x.f_add(&mixed_out(config, w, adapters, &mixed)?)?;
                return mlp_half(config, w, adapters, &mid);
            };
            states.write(plan, &left)?;
            (mixed, &net.out)
        }
        (Mixer::Attention(_), Attention::Delta { .. })
        | (Mixer::Delta(_), Attention::Causal { .. } | Attention::Paged { .. }) => {
            let text = "a layer was given the past of another kind of layers";
            return Err(TchError::Torch(text.into()));
        }
    };
    let mut x = x.shallow_clone();
    let norm = w.attention_added_norm.as_ref();
    add_to(config, &mut x, &mixed, (out, norm), adapters)?;
    let gated = gated(config, w, adapters, &x)?;
    let norm = w.mlp_added_norm.as_ref();
    add_to(config, &mut x, &gated, (&w.down, norm), adapters)?;
    Ok(x)
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

/// The output of a mixer that is added to the residual stream.
///
/// # Shapes
/// `mixed`: `[b, t, heads * e]`, in the dtype of the weights. Returns `[b, t, d]`, in that dtype or f32.
///
/// # Errors
/// As [`layer_forward`].
pub fn mixed_out<'a>(
    config: &ModelConfig,
    w: &LayerWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    mixed: &Tensor,
) -> Result<Tensor> {
    let out = match &w.mixer {
        Mixer::Attention(mixer) => &mixer.o,
        Mixer::Delta(net) => &net.out,
    };
    let out = out.forward(mixed, adapters.into())?;
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

/// The input of a layer's mixer.
///
/// # Shapes
/// `x`: `[b, t, d]`, f32; returns the same in `kind`.
///
/// # Errors
/// As [`layer_forward`].
pub fn input_normed(
    config: &ModelConfig,
    w: &LayerWeights,
    kind: Kind,
    x: &Tensor,
) -> Result<Tensor> {
    rms_norm(x, &w.input_norm, config.norm_eps, kind)
}

/// The queries without the gates that stand behind them as further heads, and those gates, `[b, t, heads * e]`.
///
/// # Shapes
/// `q`: `[b, heads or 2 * heads, t, e]`.
///
/// # Errors
/// What libtorch reports.
pub fn without_gate(config: &ModelConfig, q: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
    if !config.output_gate {
        return Ok((q.shallow_clone(), None));
    }
    let [q, gate] = split(q, [config.n_heads, config.n_heads], 1)?;
    let (b, _, t, _) = gate.size4()?;
    let gate = gate.f_transpose(1, 2)?.f_reshape([b, t, -1])?;
    Ok((q, Some(gate)))
}

/// What attention gives, times the sigmoid of its gate.
///
/// # Shapes
/// Both `[b, t, heads * e]`, in one dtype; returns the same.
///
/// # Errors
/// What libtorch reports.
pub fn gated_by(mixed: Tensor, gate: Option<Tensor>) -> Result<Tensor> {
    match gate {
        Some(gate) => mixed.f_mul(&gate.f_sigmoid()?),
        None => Ok(mixed),
    }
}

/// Queries, keys and values of a layer's input, queries and keys rotated. Gates stand behind the queries, as further heads.
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
    mixer: &AttentionWeights,
    adapters: impl Into<LayerAdapters<'a>>,
    x: &Tensor,
    rope: &RopeSlice,
) -> Result<[Tensor; 3]> {
    let (h, kv) = (config.n_heads, config.n_kv_heads);
    let normed = input_normed(config, w, mixer.qkv.weight.kind()?, x)?;
    let ([_, qk, v], gate) = projected(config, mixer, adapters.into(), &normed, rope.has_norms)?;
    let [mut q, k] = split(&rope.rotate(&qk)?, [h, kv], 2)?;
    if let Some(gate) = gate {
        q = Tensor::f_cat(&[q, gate], 2)?;
    }
    Ok([q, k, v])
}

/// As [`qkv`], inference only: queries, `[b, t, heads, e]`, and keys beside values, `[b, t, 2 * kv_heads, e]`; and the gates,
/// `[b, t, heads * e]`.
fn qkv_in_place(
    config: &ModelConfig,
    w: &LayerWeights,
    mixer: &AttentionWeights,
    adapters: LayerAdapters<'_>,
    x: &Tensor,
    rope: &RopeSlice,
) -> Result<([Tensor; 2], Option<Tensor>)> {
    let (h, kv) = (config.n_heads, config.n_kv_heads);
    let normed = input_normed(config, w, mixer.qkv.weight.kind()?, x)?;
    let ([all, qk, _], gate) = projected(config, mixer, adapters, &normed, rope.has_norms)?;
    rope.rotate_into(&qk, &mut all.f_narrow(2, 0, h + kv)?)?;
    let gate = gate.map(|gate| gate.f_flatten(2, 3)).transpose()?;
    Ok((split(&all, [h, 2 * kv], 2)?, gate))
}

/// The products that a layer begins with, `[b, t, heads, e]` each: all heads; queries and keys, normalised if the model does that; values.
/// The gates are returned beside them. If `angles_have_norms`, the rotation multiplies by the weights of the norms, so that they are
/// left out here.
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
fn projected(
    config: &ModelConfig,
    mixer: &AttentionWeights,
    adapters: LayerAdapters<'_>,
    normed: &Tensor,
    angles_have_norms: bool,
) -> Result<([Tensor; 3], Option<Tensor>)> {
    let (b, t, _) = normed.size3()?;
    let (h, kv, e) = (config.n_heads, config.n_kv_heads, config.head_dim);
    let mut all = mixer.qkv.forward(normed, adapters)?.f_view([b, t, -1, e])?;
    let mut gate = None;
    if config.output_gate {
        let [queries, rest] = split(&all, [2 * h, 2 * kv], 2)?;
        let pairs = queries.f_reshape([b, t, h, 2 * e])?;
        let [q, behind] = split(&pairs, [e, e], 3)?;
        all = Tensor::f_cat(&[q, rest], 2)?;
        gate = Some(behind);
    }
    let [qk, v] = split(&all, [h + kv, kv], 2)?;
    let qk = match &mixer.qk_norm {
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
    Ok(([all, qk, v], gate))
}
