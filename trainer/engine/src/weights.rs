//! Weights of a Hugging Face directory: every name and shape checked before a number is used.
//!
//! Files are mapped, not read: a tensor whose stored dtype is the engine's costs no memory of its
//! own and is *read-only* (an in-place operation on it is a SIGSEGV); any other is a converted copy.

mod blob;
mod error;
mod fingerprint;
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
    // Small, and what they scale is f32.
    let norm = |name: &str| files.tensor(name, Kind::Float);
    let layers = (0..family.n_layers)
        .map(|i| layer(family, i, &get, &norm))
        .collect::<Result<_, LoadError>>()?;
    let unembed = if family.tied {
        embed.shallow_clone()
    } else {
        get(UNEMBED)?
    };
    Ok(Weights {
        embed,
        layers,
        norm: norm(NORM)?,
        unembed,
    })
}

fn layer(
    family: &Family,
    i: usize,
    get: &impl Fn(&str) -> Result<Tensor, LoadError>,
    norm: &impl Fn(&str) -> Result<Tensor, LoadError>,
) -> Result<LayerWeights, LoadError> {
    let part = |part: &str| get(&format!("model.layers.{i}.{part}"));
    let norm = |part: &str| norm(&format!("model.layers.{i}.{part}"));
    let when = |on: bool, name: &str| on.then(|| part(name)).transpose();
    let head_norm = |name: &str| family.qk_norm.then(|| norm(name)).transpose();
    Ok(LayerWeights {
        input_norm: norm("input_layernorm.weight")?,
        q: part("self_attn.q_proj.weight")?,
        k: part("self_attn.k_proj.weight")?,
        v: part("self_attn.v_proj.weight")?,
        o: part("self_attn.o_proj.weight")?,
        q_bias: when(family.qkv_bias, "self_attn.q_proj.bias")?,
        k_bias: when(family.qkv_bias, "self_attn.k_proj.bias")?,
        v_bias: when(family.qkv_bias, "self_attn.v_proj.bias")?,
        o_bias: when(family.o_bias, "self_attn.o_proj.bias")?,
        q_norm: head_norm("self_attn.q_norm.weight")?,
        k_norm: head_norm("self_attn.k_norm.weight")?,
        post_norm: norm("post_attention_layernorm.weight")?,
        gate: part("mlp.gate_proj.weight")?,
        up: part("mlp.up_proj.weight")?,
        down: part("mlp.down_proj.weight")?,
    })
}

#[cfg(test)]
mod tests;
