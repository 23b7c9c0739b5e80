//! `rope_scaling` of config.json from GGUF metadata.

use std::f64::consts::TAU;
use std::fs::File;

use serde_json::{Value, json};

use super::super::header::{GgufHeader, Meta};
use super::super::tensors;
use crate::weights::LoadError;

const DIVISORS: &str = "rope_freqs.weight";
/// The constants of every Llama from 3.1 on: `low_freq_factor`, `high_freq_factor`, `original_max_position_embeddings`.
const LLAMA3: (f64, f64, f64) = (1.0, 4.0, 8192.0);

/// The `rope_scaling` that `transformers` would find; null if the angles are not scaled.
pub(super) fn scaling(
    header: &GgufHeader,
    file: &mut File,
    arch: &str,
) -> Result<Value, LoadError> {
    if header.tensors.contains_key(DIVISORS) {
        return llama3(header, file, arch);
    }
    let key = |name: &str| format!("{arch}.rope.scaling.{name}");
    let given = |name: &str| {
        header
            .get(&key(name))
            .map(|_| header.float(&key(name)))
            .transpose()
    };
    match header.get(&key("type")) {
        None => Ok(Value::Null),
        Some(Meta::Text(kind)) if kind == "none" => Ok(Value::Null),
        Some(Meta::Text(kind)) if kind == "linear" => {
            Ok(json!({"rope_type": "linear", "factor": header.float(&key("factor"))?}))
        }
        Some(Meta::Text(kind)) if kind == "yarn" => {
            let mut yarn = json!({"rope_type": "yarn", "factor": header.float(&key("factor"))?});
            if let Some(original) = header.optional_int(&key("original_context_length"))? {
                yarn["original_max_position_embeddings"] = json!(original);
            }
            for name in ["beta_fast", "beta_slow"] {
                if let Some(value) = given(&format!("yarn_{name}"))? {
                    yarn[name] = json!(value);
                }
            }
            // llama.cpp multiplies by this factor on top of what transformers computes itself.
            if let Some(more) = given("attn_factor")?.filter(|more| (more - 1.0).abs() > 1e-6) {
                let factor = header.float(&key("factor"))?;
                yarn["attention_factor"] = json!(more * (0.1 * factor.ln() + 1.0));
            }
            Ok(yarn)
        }
        Some(other) => {
            let allowed = "none, linear, yarn (for others use the model's Hugging Face folder)";
            let shown = match other {
                Meta::Text(kind) => kind.clone(),
                other => format!("{other:?}"),
            };
            Err(header.unsupported(&key("type"), &shown, allowed))
        }
    }
}

/// Llama 3's stretching is kept as a divisor for each pair. The largest is its factor, the rest of its form is
/// the same in all of them; that all divisors come out of it is checked.
fn llama3(header: &GgufHeader, file: &mut File, arch: &str) -> Result<Value, LoadError> {
    let divisors = tensors::read(header, file, DIVISORS)?;
    let theta = theta(header, arch)?;
    let (low, high, original) = LLAMA3;
    let factor = divisors.iter().copied().fold(1.0, f64::max);
    let n = divisors.len() as f64;
    let divisor = |pair: usize| {
        let turns = original * theta.powf(-(pair as f64) / n) / TAU;
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        1.0 / (kept + (1.0 - kept) / factor)
    };
    // A divisor that is no number fits nothing.
    let fits = |(pair, found): (usize, &f64)| (found / divisor(pair) - 1.0).abs() < 1e-3;
    let mut pairs = divisors.iter().enumerate();
    if let Some((pair, found)) = pairs.find(|&(pair, found)| !fits((pair, found))) {
        let what = format!("divisor {pair} of {DIVISORS}");
        let allowed = format!(
            "{} as in Llama 3 (low 1, high 4, original 8192; for others use the model's Hugging Face folder)",
            divisor(pair)
        );
        return Err(header.unsupported(&what, &found.to_string(), &allowed));
    }
    Ok(json!({
        "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }))
}

/// The base of the angles.
pub(super) fn theta(header: &GgufHeader, arch: &str) -> Result<f64, LoadError> {
    let key = format!("{arch}.rope.freq_base");
    if header.get(&key).is_some() {
        header.float(&key)
    } else {
        Ok(10_000.0)
    }
}
