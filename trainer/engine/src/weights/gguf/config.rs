//! config.json and generation_config.json from GGUF metadata.

mod rope;

use std::fs::File;

use serde_json::{Value, json};

use super::header::{CONTROL, GgufHeader, Meta};
use crate::weights::LoadError;

/// The `config.json` that `transformers` would read for this model.
pub(super) fn config(header: &GgufHeader, file: &mut File) -> Result<Value, LoadError> {
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
    let (hidden, heads) = (int("embedding_length")?, int("attention.head_count")?);
    let head_dim = header
        .optional_int(&format!("{arch}.attention.key_length"))?
        .unwrap_or_else(|| hidden / heads.max(1));
    let rotated = header
        .optional_int(&format!("{arch}.rope.dimension_count"))?
        .unwrap_or(head_dim);
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
        "num_key_value_heads": header.optional_int(&format!("{arch}.attention.head_count_kv"))?.unwrap_or(heads),
        "head_dim": head_dim,
        "max_position_embeddings": int("context_length")?,
        "rms_norm_eps": header.float(&format!("{arch}.attention.layer_norm_rms_epsilon"))?,
        "rope_theta": rope::theta(header, arch)?,
        "rope_scaling": rope::scaling(header, file, arch)?,
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
pub(super) fn generation_config(header: &GgufHeader, config: &Value) -> Result<Value, LoadError> {
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
fn end_ids(header: &GgufHeader) -> Result<Vec<i64>, LoadError> {
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
    let mut seen = std::collections::BTreeSet::new();
    ids.retain(|id| seen.insert(*id));
    Ok(ids)
}

/// Rows of the embedding: some models pad it beyond the tokenizer.
fn vocab_size(header: &GgufHeader) -> Result<usize, LoadError> {
    const EMBEDDING: &str = "token_embd.weight";
    let rows = header
        .tensors
        .get(EMBEDDING)
        .and_then(|info| info.shape.first());
    rows.copied().ok_or_else(|| LoadError::Damaged {
        file: header.file.clone(),
        detail: format!("tensor {EMBEDDING} is missing"),
    })
}
