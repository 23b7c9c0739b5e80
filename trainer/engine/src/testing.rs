//! A tiny random model on disk, for tests of this crate and of dependent ones.
//!
//! All parts are real (config, safetensors, byte-level tokenizer, chat template), and it is so small that a test takes
//! milliseconds, without a download.

use std::collections::BTreeMap;
use std::path::Path;

use metaclaw_trainer_text::{ModelFileError, testing::write_tiny_text};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use crate::model_config::{self, ModelConfig, NormWeights};
use crate::rng::SplitMix64;
use crate::weights::{LoadError, expected};

pub use metaclaw_trainer_text::testing::{SPECIAL, TEMPLATE};

/// Returns config.json of the tiny Llama.
pub fn tiny_config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 259,
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": true, "bos_token_id": 256, "eos_token_id": 258,
        "torch_dtype": "float32",
    })
}

/// Returns config.json of a tiny Qwen3.5 of so many layers, of which the first and every second one is a gated delta net.
pub fn tiny_nets(n_layers: usize) -> Value {
    let kinds = ["linear_attention", "full_attention"].into_iter().cycle();
    let mut config = tiny_config();
    config["model_type"] = json!("qwen3_5_text");
    config["architectures"] = json!(["Qwen3_5ForCausalLM"]);
    config["num_hidden_layers"] = json!(n_layers);
    config["layer_types"] = kinds.take(n_layers).collect();
    for (field, size) in [
        ("head_dim", 16),
        ("linear_num_key_heads", 2),
        ("linear_num_value_heads", 4),
        ("linear_key_head_dim", 8),
        ("linear_value_head_dim", 6),
        ("linear_conv_kernel_dim", 4),
    ] {
        config[field] = json!(size);
    }
    config
}

/// Returns config.json of a tiny Gemma 4 of four layers: every second one sees everything and has other heads, the last two attend to
/// the keys of the others and have wider MLPs, and all have inputs of their own.
pub fn tiny_gemma4() -> Value {
    let mut config = tiny_config();
    let kinds = ["sliding_attention", "full_attention"].into_iter().cycle();
    config["model_type"] = json!("gemma4_text");
    config["architectures"] = json!(["Gemma4ForCausalLM"]);
    config["layer_types"] = kinds.take(4).collect();
    for (field, value) in [
        ("num_hidden_layers", json!(4)),
        ("hidden_act", Value::Null),
        ("head_dim", json!(8)),
        ("global_head_dim", json!(16)),
        ("attention_k_eq_v", json!(true)),
        ("num_global_key_value_heads", json!(1)),
        ("num_kv_shared_layers", json!(2)),
        ("use_double_wide_mlp", json!(true)),
        ("hidden_size_per_layer_input", json!(32)),
        ("vocab_size_per_layer_input", json!(259)),
        ("sliding_window", json!(6)),
        ("final_logit_softcapping", json!(8.0)),
    ] {
        config[field] = value;
    }
    config
}

/// Returns the parsed [`tiny_config`].
///
/// # Panics
/// Never panics, because the configuration is a constant.
#[expect(clippy::expect_used, reason = "the configuration is a constant")]
pub fn tiny_model_config() -> ModelConfig {
    model_config::from_json(Path::new("config.json"), tiny_config()).expect("a valid constant")
}

/// Writes a random model (f32, by `seed`) into `dir`.
///
/// # Errors
/// Fails if `dir` cannot be written.
pub fn write_tiny_model(dir: &Path, seed: u64) -> Result<ModelConfig, LoadError> {
    write_model(dir, &tiny_config(), seed)
}

/// Writes a model like [`write_tiny_model`], with the caller's configuration.
///
/// # Errors
/// Fails if the configuration is refused or `dir` cannot be written.
pub fn write_model(dir: &Path, config: &Value, seed: u64) -> Result<ModelConfig, LoadError> {
    let model_config = model_config::from_json(&dir.join("config.json"), config.clone())?;
    let text = |name: &str, value: &Value| write(dir, name, value.to_string().as_bytes());
    text("config.json", config)?;
    text("generation_config.json", &json!({"eos_token_id": [258]}))?;
    write_tiny_text(dir)?;
    write_weights(dir, &model_config, seed)?;
    Ok(model_config)
}

fn write_weights(dir: &Path, model_config: &ModelConfig, seed: u64) -> Result<(), LoadError> {
    let mut tensors = BTreeMap::new();
    for (i, (name, shape)) in expected(model_config).into_iter().enumerate() {
        let mut rng = SplitMix64::stream(seed, i as u64);
        let n: i64 = shape.iter().product();
        // Norms multiply by about 1. Matrices are wide enough that attention and MLP affect the logits.
        // States decay slowly enough that the end of a text still depends on its beginning.
        let (middle, spread) = match (name.contains("norm"), model_config.norm_weights) {
            _ if name.ends_with("A_log") => (-3.0, 2.0),
            _ if name.ends_with("layer_scalar") => (1.0, 0.3),
            _ if name.ends_with("linear_attn.norm.weight") => (1.0, 0.3),
            (true, NormWeights::Plain) => (1.0, 0.3),
            (true, NormWeights::LessOne) => (0.0, 0.3),
            (false, _) => (0.0, 0.4),
        };
        #[expect(clippy::cast_possible_truncation, reason = "stored as f32")]
        let value = |_| (rng.uniform(middle - spread, middle + spread) as f32).to_le_bytes();
        let bytes: Vec<u8> = (0..n).flat_map(value).collect();
        let shape: Vec<usize> = shape
            .iter()
            .filter_map(|&n| usize::try_from(n).ok())
            .collect();
        tensors.insert(name_in_file(model_config, name), (shape, bytes));
    }
    let file = dir.join("model.safetensors");
    let damaged = |error: safetensors::SafeTensorError| ModelFileError::damaged(&file, error);
    let views = tensors
        .iter()
        .map(|(name, (shape, bytes))| {
            Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(damaged)?;
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(damaged)?;
    write(dir, "model.safetensors", &bytes)
}

fn name_in_file(model_config: &ModelConfig, name: String) -> String {
    if model_config.is_part {
        format!("language_model.{name}")
    } else {
        name
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), LoadError> {
    let file = dir.join(name);
    Ok(std::fs::write(&file, bytes).map_err(ModelFileError::writing(&file))?)
}
