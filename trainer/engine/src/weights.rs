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

use tch::{Kind, Tensor};

pub use self::error::LoadError;
pub use self::fingerprint::fingerprint;
use self::index::SafeFiles;
pub use self::shapes::expected;
use self::shapes::{EMBED, NORM, UNEMBED};
use crate::family::Family;
use crate::layer::LayerWeights;
use crate::linear::Linear;
use crate::lora::Part;
use crate::lora::{LayerDims, Projection};

/// All base weights of a model, in the engine's dtype.
#[derive(Debug)]
pub struct Weights {
    /// `[vocab, d]`.
    pub embed: Tensor,
    /// One per layer.
    pub layers: Vec<LayerWeights>,
    /// The last RMSNorm, `[d]`.
    pub norm: Tensor,
    /// `[vocab, d]`; the embedding itself where tied.
    pub unembed: Tensor,
}

/// Loads all weights of a directory as `kind`.
///
/// # Errors
/// [`LoadError`] naming the file, and the tensor that is missing, unexpected or misshaped.
pub fn load(dir: &Path, family: &Family, kind: Kind) -> Result<Weights, LoadError> {
    let files = SafeFiles::open(dir)?;
    files.check(&expected(family), family.tied)?;
    let get = |name: &str| files.tensor(name, kind);
    let embed = get(EMBED)?;
    let layers = (0..family.n_layers)
        .map(|i| layer(family, i, &files, kind))
        .collect::<Result<_, LoadError>>()?;
    let unembed = if family.tied {
        embed.shallow_clone()
    } else {
        get(UNEMBED)?
    };
    Ok(Weights {
        embed,
        layers,
        norm: files.tensor(NORM, Kind::Float)?,
        unembed,
    })
}

fn layer(
    family: &Family,
    i: usize,
    files: &SafeFiles,
    kind: Kind,
) -> Result<LayerWeights, LoadError> {
    // Small, and what they scale is f32.
    let norm = |part: &str| files.tensor(&format!("model.layers.{i}.{part}"), Kind::Float);
    let linear = |parts: &[(Projection, &str)], bias| linear(family, files, kind, (i, parts, bias));
    let qkv = [
        (Projection::Q, "self_attn.q_proj"),
        (Projection::K, "self_attn.k_proj"),
        (Projection::V, "self_attn.v_proj"),
    ];
    let gate_up = [
        (Projection::Gate, "mlp.gate_proj"),
        (Projection::Up, "mlp.up_proj"),
    ];
    Ok(LayerWeights {
        input_norm: norm("input_layernorm.weight")?,
        qkv: linear(&qkv, family.qkv_bias)?,
        o: linear(&[(Projection::O, "self_attn.o_proj")], family.o_bias)?,
        qk_norm: family.qk_norm.then(|| qk_norm(family, &norm)).transpose()?,
        post_norm: norm("post_attention_layernorm.weight")?,
        gate_up: linear(&gate_up, false)?,
        down: linear(&[(Projection::Down, "mlp.down_proj")], false)?,
    })
}

/// One map of the projections that read the same input.
fn linear(
    family: &Family,
    files: &SafeFiles,
    kind: Kind,
    (layer, parts, bias): (usize, &[(Projection, &str)], bool),
) -> Result<Linear, LoadError> {
    let stacked = |what: &str| {
        let names = parts.iter();
        let names: Vec<String> = names
            .map(|(_, module)| format!("model.layers.{layer}.{module}.{what}"))
            .collect();
        files.stacked(&names, kind)
    };
    let dims = LayerDims::of(family);
    let part = |&(projection, _): &(Projection, &str)| Part {
        projection,
        width: dims.widths(projection).1,
    };
    Ok(Linear {
        weight: stacked("weight")?,
        bias: bias.then(|| stacked("bias")).transpose()?,
        parts: parts.iter().map(part).collect(),
    })
}

/// The norm of every query and key head, `[n_heads + n_kv_heads, e]`.
fn qk_norm(
    family: &Family,
    norm: &impl Fn(&str) -> Result<Tensor, LoadError>,
) -> Result<Tensor, LoadError> {
    let heads = |name: &str, n: i64| {
        norm(name)?
            .f_expand([n, -1], false)
            .map_err(LoadError::from)
    };
    let q = heads("self_attn.q_norm.weight", family.n_heads)?;
    let k = heads("self_attn.k_norm.weight", family.n_kv_heads)?;
    Ok(Tensor::f_cat(&[q, k], 0)?)
}

#[cfg(test)]
mod tests;
