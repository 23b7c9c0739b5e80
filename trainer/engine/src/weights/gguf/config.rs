//! config.json and generation_config.json from GGUF metadata.

use std::{collections::BTreeSet, f64::consts::TAU, fs::File};

use serde_json::{Value, json};

use super::{
    header::{CONTROL, GgufHeader, Meta},
    tensors,
};
use crate::weights::error::Result;

/// The `config.json` that `transformers` would read for this model.
pub(super) fn config(header: &GgufHeader, file: &mut File) -> Result<Value> {
    let arch = header.text("general.architecture")?;
    let class = match arch {
        "llama" => "LlamaForCausalLM",
        "qwen2" => "Qwen2ForCausalLM",
        "qwen3" => "Qwen3ForCausalLM",
        other => {
            return Err(header.unsupported("general.architecture", other, "llama, qwen2, qwen3"));
        }
    };
    let int = |key: &str| header.int(&format!("{arch}.{key}"));
    let optional = |key: &str| header.optional_int(&format!("{arch}.{key}"));
    let (hidden, heads) = (int("embedding_length")?, int("attention.head_count")?);
    let key_length = optional("attention.key_length")?;
    let head_dim = key_length.unwrap_or_else(|| hidden / heads.max(1));
    let rotated = optional("rope.dimension_count")?.unwrap_or(head_dim);
    if rotated != head_dim {
        let key = format!("{arch}.rope.dimension_count");
        let allowed = format!("{head_dim}, the whole head");
        return Err(header.unsupported(&key, &rotated.to_string(), &allowed));
    }
    let mut config = json!({
        "architectures": [class],
        "model_type": arch,
        "vocab_size": vocab_size(header)?,
        "hidden_size": hidden,
        "intermediate_size": int("feed_forward_length")?,
        "num_hidden_layers": int("block_count")?,
        "num_attention_heads": heads,
        "num_key_value_heads": optional("attention.head_count_kv")?.unwrap_or(heads),
        "head_dim": head_dim,
        "max_position_embeddings": int("context_length")?,
        "rms_norm_eps": header.float(&format!("{arch}.attention.layer_norm_rms_epsilon"))?,
        "rope_theta": rope_theta(header, arch)?,
        "rope_scaling": rope_scaling(header, file, arch)?,
        "hidden_act": "silu",
        "attention_bias": arch == "llama" && header.tensors.contains_key("blk.0.attn_q.bias"),
        "tie_word_embeddings": !header.tensors.contains_key("output.weight"),
        "torch_dtype": "bfloat16",
    });
    for (ours, theirs) in [
        ("bos_token_id", "bos"),
        ("eos_token_id", "eos"),
        ("pad_token_id", "padding"),
    ] {
        let key = format!("tokenizer.ggml.{theirs}_token_id");
        if header.get(&key).is_some() {
            config[ours] = json!(header.int(&key)?);
        }
    }
    if let Some(Meta::Text(name)) = header.get("general.name") {
        config["_name_or_path"] = json!(name);
    }
    Ok(config)
}

/// The ids that `generate` of transformers takes from its own file; every one that ends a turn.
pub(super) fn generation_config(header: &GgufHeader, config: &Value) -> Result<Value> {
    let mut generation = json!({"_from_model_config": true});
    for key in ["bos_token_id", "pad_token_id"] {
        if let Some(id) = config.get(key) {
            generation[key] = id.clone();
        }
    }
    let ends = end_ids(header)?;
    if !ends.is_empty() {
        generation["eos_token_id"] = json!(ends);
    }
    Ok(generation)
}

/// The ids that end a reply: by name, and the control tokens that end turns. Files made before `eot_token_id` existed
/// lack it.
fn end_ids(header: &GgufHeader) -> Result<Vec<i64>> {
    const TURN_ENDS: [&str; 5] = [
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
    ];
    let mut ids = Vec::new();
    for role in ["eos", "eot", "eom"] {
        ids.extend(header.optional_int(&format!("tokenizer.ggml.{role}_token_id"))?);
    }
    if let Some(Meta::List(more)) = header.get("tokenizer.ggml.eos_token_ids") {
        let ints = more.iter().filter_map(|id| match id {
            Meta::Int(id) => Some(*id),
            _ => None,
        });
        ids.extend(ints);
    }
    let tokens = header.texts("tokenizer.ggml.tokens")?;
    let kinds = header.list("tokenizer.ggml.token_type")?;
    for (id, (token, kind)) in (0..).zip(tokens.iter().zip(kinds)) {
        if TURN_ENDS.contains(token) && *kind == Meta::Int(CONTROL) {
            ids.push(id);
        }
    }
    let mut seen = BTreeSet::new();
    ids.retain(|id| seen.insert(*id));
    Ok(ids)
}

/// Rows of the embedding: some models pad it beyond the tokenizer.
fn vocab_size(header: &GgufHeader) -> Result<usize> {
    const EMBEDDING: &str = "token_embd.weight";
    let rows = header.tensor(EMBEDDING)?.shape.first().copied();
    rows.ok_or_else(|| header.damaged(format!("tensor {EMBEDDING} has no rows")))
}

const DIVISORS: &str = "rope_freqs.weight";
/// The constants of every Llama from 3.1 on: `low_freq_factor`, `high_freq_factor`, `original_max_position_embeddings`.
const LLAMA3: (f64, f64, f64) = (1.0, 4.0, 8192.0);

/// The `rope_scaling` that `transformers` would find; null if the angles are not scaled.
fn rope_scaling(header: &GgufHeader, file: &mut File, arch: &str) -> Result<Value> {
    if header.tensors.contains_key(DIVISORS) {
        return llama3(header, file, arch);
    }
    let key = |name: &str| format!("{arch}.rope.scaling.{name}");
    let given = |name: &str| {
        let value = header.get(&key(name));
        value.map(|_| header.float(&key(name))).transpose()
    };
    let kind = match header.get(&key("type")) {
        None => return Ok(Value::Null),
        Some(Meta::Text(kind)) => kind.clone(),
        Some(other) => format!("{other:?}"),
    };
    match kind.as_str() {
        "none" => Ok(Value::Null),
        "linear" => Ok(json!({"rope_type": "linear", "factor": header.float(&key("factor"))?})),
        "yarn" => {
            let factor = header.float(&key("factor"))?;
            let mut yarn = json!({"rope_type": "yarn", "factor": factor});
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
                yarn["attention_factor"] = json!(more * (0.1 * factor.ln() + 1.0));
            }
            Ok(yarn)
        }
        other => {
            let allowed = "none, linear, yarn (for others use the model's Hugging Face folder)";
            Err(header.unsupported(&key("type"), other, allowed))
        }
    }
}

/// Llama 3's stretching is kept as a divisor for each pair. The largest is its factor, the rest of its form is
/// the same in all of them; that all divisors come out of it is checked.
fn llama3(header: &GgufHeader, file: &mut File, arch: &str) -> Result<Value> {
    let divisors = tensors::read(header, file, DIVISORS)?;
    let theta = rope_theta(header, arch)?;
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

fn rope_theta(header: &GgufHeader, arch: &str) -> Result<f64> {
    let key = format!("{arch}.rope.freq_base");
    header
        .get(&key)
        .map_or(Ok(10_000.0), |_| header.float(&key))
}
