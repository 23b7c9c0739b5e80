//! Weights of a Hugging Face directory: every name and shape checked before a number is used.
//!
//! Files are mapped, not read: a tensor whose stored dtype is the engine's costs no memory of its
//! own and is *read-only* (an in-place operation on it is a SIGSEGV); any other is a converted copy.

mod blob;
mod fingerprint;
pub mod gguf;
mod index;

use std::path::{Path, PathBuf};

use tch::{Kind, TchError, Tensor};

pub use self::fingerprint::fingerprint;
use self::index::SafeFiles;
use crate::family::{Family, FamilyError};
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

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// config.json is not usable.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// A file of the model cannot be read.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written (cache folder).
    #[error("cannot write {file}: {source}", file = file.display())]
    Write {
        /// The file or folder.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No model stands at the path.
    #[error("{path} is no model: expected a .gguf file, or a folder with config.json, tokenizer.json and model.safetensors", path = path.display())]
    NoModel {
        /// What was given.
        path: PathBuf,
    },
    /// A file is truncated or holds something else than its name says.
    #[error("{file} is damaged or no model file: {detail}", file = file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A file is whole but holds what this engine cannot use.
    #[error("{file}: {what} is {value}, allowed: {allowed}", file = file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// Field, tensor or type.
        what: String,
        /// What it is.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The chat template is missing or does not compile.
    #[error("{file}: chat template cannot be used: {detail}", file = file.display())]
    Template {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A setting of the engine is out of range.
    #[error("{field} is {value}, allowed: {allowed}")]
    Setting {
        /// The setting.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
    /// The engine's thread could not be started, or ended while loading.
    #[error("the engine thread could not start: {0}")]
    Thread(String),
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

const EMBED: &str = "model.embed_tokens.weight";
const NORM: &str = "model.norm.weight";
const UNEMBED: &str = "lm_head.weight";

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

/// Names and shapes that a directory must hold for this family, in file order.
pub fn expected(family: &Family) -> Vec<(String, Vec<i64>)> {
    let (d, m) = (family.hidden, family.intermediate);
    let mut all = vec![(EMBED.to_owned(), vec![family.vocab, d])];
    for i in 0..family.n_layers {
        let named = layer_shapes(family, d, m).into_iter();
        all.extend(named.map(|(part, shape)| (format!("model.layers.{i}.{part}"), shape)));
    }
    all.push((NORM.to_owned(), vec![d]));
    if !family.tied {
        all.push((UNEMBED.to_owned(), vec![family.vocab, d]));
    }
    all
}

fn layer_shapes(family: &Family, d: i64, m: i64) -> Vec<(&'static str, Vec<i64>)> {
    let (q, kv) = (
        family.n_heads * family.head_dim,
        family.n_kv_heads * family.head_dim,
    );
    let mut shapes = vec![
        ("input_layernorm.weight", vec![d]),
        ("self_attn.q_proj.weight", vec![q, d]),
        ("self_attn.k_proj.weight", vec![kv, d]),
        ("self_attn.v_proj.weight", vec![kv, d]),
        ("self_attn.o_proj.weight", vec![d, q]),
        ("post_attention_layernorm.weight", vec![d]),
        ("mlp.gate_proj.weight", vec![m, d]),
        ("mlp.up_proj.weight", vec![m, d]),
        ("mlp.down_proj.weight", vec![d, m]),
    ];
    if family.qkv_bias {
        shapes.extend([
            ("self_attn.q_proj.bias", vec![q]),
            ("self_attn.k_proj.bias", vec![kv]),
            ("self_attn.v_proj.bias", vec![kv]),
        ]);
    }
    if family.o_bias {
        shapes.push(("self_attn.o_proj.bias", vec![d]));
    }
    if family.qk_norm {
        shapes.push(("self_attn.q_norm.weight", vec![family.head_dim]));
        shapes.push(("self_attn.k_norm.weight", vec![family.head_dim]));
    }
    shapes
}

#[cfg(test)]
mod tests;
