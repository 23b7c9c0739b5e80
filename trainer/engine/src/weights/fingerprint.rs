//! Which base this is, by content: adapters remember it, and are refused on another.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::index::SafeFiles;
use super::shapes::expected;
use crate::digest::hex;
use crate::model_config::{Architecture, LayerSpec, ModelConfig, RopeScaling, RopeSpec};
use crate::weights::error::Result;

/// Bytes looked at in each place of a tensor, and how many places of a large one, spread evenly: the whole of
/// a large model would take seconds at each start.
const SAMPLE: usize = 1 << 12;
const PLACES: usize = 16;

/// A hash of what a model computes with: the fields of `config.json` that change a number, and each tensor's
/// name, dtype, shape and samples of its numbers.
///
/// Another model, another quantisation or another fine-tune has another one. The same weights cut into other
/// files, a comment in config.json, the version of the program that wrote it or more tokens of context have not.
///
/// # Errors
/// When a file cannot be read or is not what config.json calls for.
pub fn fingerprint(dir: &Path, config: &ModelConfig) -> Result<String> {
    let files = SafeFiles::open(dir, config.is_part)?;
    let mut hash = Sha256::new();
    hash.update(numbers_of(config));
    for (name, shape) in expected(config) {
        let (dtype, bytes) = files.stored(&name)?;
        hash.update(format!("\n{name} {dtype:?} {shape:?} "));
        sample(bytes, &mut hash);
    }
    Ok(hex(hash))
}

/// The fields of config.json that change a number. A field added here changes the fingerprints of the models that have
/// it.
fn numbers_of(config: &ModelConfig) -> String {
    let name = config.architecture.name();
    // Sizes are in the tensors' shapes, biases and norms in their names; of heads only the number is not.
    let (heads, kv_heads) = (config.n_heads, config.n_kv_heads);
    let eps = config.norm_eps;
    let mut layers: Vec<String> = config.layers.iter().map(layer).collect();
    // One entry is enough if all layers are alike.
    if layers.iter().all(|layer| Some(layer) == layers.first()) {
        layers.truncate(1);
    }
    let (layers, queries) = (layers.join("; "), config.query_scale);
    let text = format!("{name} heads {heads} {kv_heads} eps {eps} {layers}");
    match config.architecture {
        Architecture::Gemma3 => format!("{text} queries {queries}"),
        Architecture::Qwen35 => {
            let keys = config.delta.map_or(0, |net| net.n_k_heads);
            format!("{text} rotary {} linear {keys}", config.rotary)
        }
        _ => text,
    }
}

fn layer(spec: &LayerSpec) -> String {
    let RopeSpec { theta, scaling } = spec.rope;
    let rope = match scaling {
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!("linear {factor}"),
        RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => format!("llama3 {factor} {low} {high} {original}"),
        RopeScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original,
            whole_pairs,
            attention,
        } => format!("yarn {factor} {beta_fast} {beta_slow} {original} {whole_pairs} {attention}"),
    };
    let window = spec
        .window
        .map_or_else(String::new, |n| format!(" window {n}"));
    format!("rope {theta} {rope}{window}")
}

fn sample(bytes: &[u8], hash: &mut Sha256) {
    if bytes.len() <= SAMPLE * PLACES {
        hash.update(bytes);
        return;
    }
    let last = bytes.len() - SAMPLE;
    for place in 0..PLACES {
        let start = last / (PLACES - 1) * place;
        hash.update(&bytes[start..start + SAMPLE]);
    }
}
