//! Weights of a Hugging Face directory: every name and shape checked before a number is used.
//!
//! Files are mapped, not read: a tensor whose stored dtype is the engine's costs no memory of its
//! own and is *read-only* (an in-place operation on it is a SIGSEGV); any other is a converted copy.

mod blob;
mod error;
mod fingerprint;
mod finite;
pub mod gguf;
mod index;
mod shapes;

use std::path::Path;

use tch::{Device, Kind, Tensor};

pub use self::error::LoadError;
pub use self::fingerprint::fingerprint;
use self::index::SafeFiles;
use self::shapes::{EMBED, LM_HEAD, NORM, OWN_EMBED, OWN_MAP, OWN_NORM};
pub use self::shapes::{expected, n_params};
use crate::delta::DeltaNet;
use crate::few_rows;
use crate::layer::{AttentionWeights, LayerWeights, Mixer, OwnInput};
use crate::linear::Linear;
use crate::lora::FusedPart;
use crate::lora::{BaseDims, Projection};
use crate::matrix::{Matrix, Quantization};
use crate::model_config::{KvHeads, ModelConfig, NormWeights};
use crate::placement::Placement;
use crate::weights::error::Result;

/// All base weights of a model, in the engine's dtype.
#[derive(Debug)]
pub struct Weights {
    /// `[vocab, d]`.
    pub embed: Matrix,
    pub layers: Vec<LayerWeights>,
    /// The last RMSNorm, `[d]`.
    pub norm: Tensor,
    /// `[vocab, d]`; the embedding itself where tied.
    pub lm_head: Matrix,
    /// For layers that take something from the token ids beside the residual stream (Gemma 4).
    pub own: Option<OwnInputs>,
}

/// What makes the own inputs of all layers from token ids and their embeddings.
#[derive(Debug)]
pub struct OwnInputs {
    /// `[vocab, layers * own]`.
    pub embed: Matrix,
    /// `[layers * own, d]`.
    pub map: Matrix,
    /// RMSNorm of what the map gives for a layer, `[own]`.
    pub norm: Tensor,
}

/// Loads all weights of a directory as `kind`, each where its layer is.
///
/// # Shapes
/// Those of [`Weights`], and of each layer those of [`LayerWeights`].
///
/// # Errors
/// [`LoadError`] naming the file, and the tensor that is missing, unexpected or misshaped.
pub fn load(
    dir: &Path,
    config: &ModelConfig,
    kind: Kind,
    quantization: Option<Quantization>,
    placement: &Placement,
) -> Result<Weights> {
    let files = SafeFiles::open(dir, config.is_part)?;
    files.check(&expected(config), config)?;
    let (first, last) = (placement.first(), placement.last());
    let matrix = |name, device| matrix(files.tensor(name, kind, device)?, quantization);
    let embed = matrix(EMBED, first)?;
    let layers = (0..config.n_layers)
        .map(|i| {
            let source = Source {
                files: &files,
                kind,
                quantization,
                device: placement.of(i),
            };
            layer(config, i, &source)
        })
        .collect::<Result<_>>()?;
    let lm_head = if config.tied {
        embed.to_device(last)?
    } else {
        matrix(LM_HEAD, last)?
    };
    let own = shapes::own_inputs(config).map(|_| {
        Ok::<_, LoadError>(OwnInputs {
            embed: matrix(OWN_EMBED, first)?,
            map: matrix(OWN_MAP, first)?,
            norm: files.tensor(OWN_NORM, Kind::Float, first)?,
        })
    });
    Ok(Weights {
        embed,
        layers,
        own: own.transpose()?,
        norm: stored_norm(config, files.tensor(NORM, Kind::Float, last)?)?,
        lm_head,
    })
}

#[derive(Clone, Copy)]
struct Source<'a> {
    files: &'a SafeFiles,
    kind: Kind,
    quantization: Option<Quantization>,
    device: Device,
}

fn matrix(plain: Tensor, quantization: Option<Quantization>) -> Result<Matrix> {
    Ok(match quantization {
        Some(Quantization::Int8) => Matrix::int8(&plain)?,
        None => plain.into(),
    })
}

fn layer(config: &ModelConfig, i: usize, source: &Source<'_>) -> Result<LayerWeights> {
    // Small, and what they scale is f32.
    let norm = |part: &str| {
        let name = format!("model.layers.{i}.{part}");
        let stored = source.files.tensor(&name, Kind::Float, source.device)?;
        stored_norm(config, stored)
    };
    let added = |part: &str| config.added_norms.then(|| norm(part)).transpose();
    let linear = |parts: &[(Projection, &str)], bias| linear(config, source, i, parts, bias);
    let own = || {
        let map = |part: &str| {
            let name = format!("model.layers.{i}.{part}.weight");
            let weight = matrix(
                source.files.tensor(&name, source.kind, source.device)?,
                source.quantization,
            )?;
            Ok::<_, LoadError>(Linear {
                weight,
                bias: None,
                parts: Vec::new(),
            })
        };
        Ok::<_, LoadError>(OwnInput {
            gate: map("per_layer_input_gate")?,
            out: map("per_layer_projection")?,
            norm: norm("post_per_layer_input_norm.weight")?,
        })
    };
    let factor = || Ok::<_, LoadError>(norm("layer_scalar")?.f_double_value(&[0])?);
    let gate_up = [
        (Projection::Gate, "mlp.gate_proj"),
        (Projection::Up, "mlp.up_proj"),
    ];
    Ok(LayerWeights {
        input_norm: norm("input_layernorm.weight")?,
        mixer: mixer(config, i, source)?,
        attention_added_norm: added("post_attention_layernorm.weight")?,
        mlp_norm: norm(shapes::mlp_norm(config))?,
        gate_up: linear(&gate_up, false)?,
        down: linear(&[(Projection::Down, "mlp.down_proj")], false)?,
        mlp_added_norm: added("post_feedforward_layernorm.weight")?,
        own: shapes::own_inputs(config).map(|_| own()).transpose()?,
        factor: config.gemma4.map(|_| factor()).transpose()?,
    })
}

fn mixer(config: &ModelConfig, i: usize, source: &Source<'_>) -> Result<Mixer> {
    let linear = |parts: &[(Projection, &str)], bias| linear(config, source, i, parts, bias);
    let plain = |part: &str, kind| {
        let name = format!("model.layers.{i}.{part}");
        source.files.tensor(&name, kind, source.device)
    };
    if let Some(spec) = config.net_at(i) {
        let input = [
            (Projection::NetA, "linear_attn.in_proj_a"),
            (Projection::NetB, "linear_attn.in_proj_b"),
            (Projection::NetQkv, "linear_attn.in_proj_qkv"),
            (Projection::NetZ, "linear_attn.in_proj_z"),
        ];
        let taps = plain("linear_attn.conv1d.weight", Kind::Float)?;
        let rate = plain("linear_attn.A_log", Kind::Float)?;
        return Ok(Mixer::Delta(DeltaNet {
            spec,
            input: linear(&input, false)?,
            out: linear(&[(Projection::NetOut, "linear_attn.out_proj")], false)?,
            taps: taps.f_squeeze_dim(1)?.f_tr()?.f_contiguous()?,
            rate: rate.f_exp()?.f_neg()?,
            dt_bias: plain("linear_attn.dt_bias", Kind::Float)?,
            norm: plain("linear_attn.norm.weight", Kind::Float)?,
        }));
    }
    let mut qkv = vec![
        (Projection::Q, "self_attn.q_proj"),
        (Projection::K, "self_attn.k_proj"),
        (Projection::V, "self_attn.v_proj"),
    ];
    let dims = BaseDims::of(config);
    qkv.retain(|&(projection, _)| dims.has(i, projection));
    let own = config.kv_heads_at(i);
    let heads = own.unwrap_or_else(|| KvHeads {
        n: 0,
        ..config.heads_at(i)
    });
    let norm = |part: &str| stored_norm(config, plain(part, Kind::Float)?);
    Ok(Mixer::Attention(AttentionWeights {
        qkv: linear(&qkv, config.qkv_bias)?,
        o: linear(&[(Projection::O, "self_attn.o_proj")], config.o_bias)?,
        qk_norm: config
            .qk_norm
            .then(|| {
                Ok::<_, LoadError>(qk_norm(config, (i, heads), &norm)?.f_to_kind(source.kind)?)
            })
            .transpose()?,
        heads,
    }))
}

fn linear(
    config: &ModelConfig,
    source: &Source<'_>,
    layer: usize,
    parts: &[(Projection, &str)],
    bias: bool,
) -> Result<Linear> {
    let stacked = |what: &str| {
        let names = parts.iter();
        let names: Vec<String> = names
            .map(|(_, module)| format!("model.layers.{layer}.{module}.{what}"))
            .collect();
        source.files.stacked(&names, source.kind, source.device)
    };
    let dims = BaseDims::of(config);
    let part = |&(projection, _): &(Projection, &str)| FusedPart {
        projection,
        width: dims.widths(layer, projection).1,
    };
    Ok(Linear {
        weight: match source.quantization {
            None => for_few_rows(stacked("weight")?)?.into(),
            some => matrix(stacked("weight")?, some)?,
        },
        bias: bias.then(|| stacked("bias")).transpose()?,
        parts: parts.iter().map(part).collect(),
    })
}

/// The same matrix `[out, in]`, in the memory layout that is best for products of few rows. For f32 on a CPU without our own kernels these
/// are MKL's products, and the matrix is stored by columns: MKL then multiplies 4 to 32 rows (replies side by side, short prompts) in 0.4
/// to 0.8 of the time, and one row or 64 in the same time. Our own kernels read a matrix by rows.
fn for_few_rows(weight: Tensor) -> Result<Tensor> {
    let is_mkls = weight.f_kind()? == Kind::Float && weight.device() == Device::Cpu;
    if !is_mkls || few_rows::are_here() {
        return Ok(weight);
    }
    Ok(weight.f_tr()?.f_contiguous()?.f_tr()?)
}

fn stored_norm(config: &ModelConfig, stored: Tensor) -> Result<Tensor> {
    match config.norm_weights {
        NormWeights::Plain => Ok(stored),
        NormWeights::LessOne => Ok(stored.f_add_scalar(1.0)?),
    }
}

/// The norm of every query and key head, `[n_heads + n_kv_heads, e]`. Angles and scores are linear in the queries, so that a
/// scale of theirs is a part of their norm.
fn qk_norm(
    config: &ModelConfig,
    (layer, own): (usize, KvHeads),
    norm: &impl Fn(&str) -> Result<Tensor>,
) -> Result<Tensor> {
    let heads = |name: &str, n: i64| {
        norm(name)?
            .f_expand([n, -1], false)
            .map_err(LoadError::from)
    };
    let q = heads("self_attn.q_norm.weight", config.n_heads)?;
    let q = q.f_mul_scalar(config.query_scale_at(layer))?;
    if own.n == 0 {
        return Ok(q);
    }
    let k = heads("self_attn.k_norm.weight", own.n)?;
    Ok(Tensor::f_cat(&[q, k], 0)?)
}

#[cfg(test)]
mod tests;
