use super::*;
use crate::device::Devices;
use crate::model::Model;
use crate::testing::tiny_config;
use crate::tests::{distance, forward, is_near, model_folder, tiny_with};
use serde_json::json;

fn on_cpu() -> Placement {
    Placement::on(Device::Cpu)
}

fn error(dir: &Path) -> String {
    let model_config = ModelConfig::read(dir).unwrap();
    let loaded = load(dir, &model_config, Kind::Float, None, &on_cpu());
    let message = loaded.unwrap_err().to_string();
    message.replace(&dir.display().to_string(), "DIR")
}

fn model() -> tempfile::TempDir {
    model_folder(&tiny_config(), 3)
}

/// Replaces `config.json`.
fn configure(dir: &Path, fields: &[(&str, serde_json::Value)]) {
    let text = format!("{:#}  ", tiny_with(fields));
    std::fs::write(dir.join("config.json"), text).unwrap();
}

fn index(dir: &Path, tensor: &str, file: &str) {
    let index = json!({"weight_map": {tensor: file}});
    let path = dir.join("model.safetensors.index.json");
    std::fs::write(path, index.to_string()).unwrap();
}

#[test]
fn a_stored_dtype_is_mapped_and_another_converted() {
    let dir = model();
    let model_config = ModelConfig::read(dir.path()).unwrap();
    let load = |kind| load(dir.path(), &model_config, kind, None, &on_cpu()).unwrap();
    let (f32, bf16) = (load(Kind::Float), load(Kind::BFloat16));
    assert_eq!(bf16.embed.kind().unwrap(), Kind::BFloat16);
    let rounded = bf16.embed.plain().unwrap().to_kind(Kind::Float);
    assert!(is_near(&rounded, &f32.embed.plain().unwrap(), 1e-2));
    let down = |weights: &Weights| weights.layers[1].down.weight.plain().unwrap().copy();
    assert!(down(&load(Kind::Float)).equal(&down(&f32)));
}

#[test]
fn a_truncated_file_says_so() {
    let dir = model();
    let file = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    insta::assert_snapshot!(error(dir.path()), @"DIR/model.safetensors is damaged or no model file: it ends after 54776 bytes, before its tensors do: truncated, fetch it again");
    std::fs::write(&file, b"").unwrap();
    insta::assert_snapshot!(error(dir.path()), @"DIR/model.safetensors is damaged or no model file: it ends after 0 bytes, before its tensors do: truncated, fetch it again");
    std::fs::write(&file, b"<html>not found</html>").unwrap();
    insta::assert_snapshot!(error(dir.path()), @"DIR/model.safetensors is damaged or no model file: it is no valid safetensors file: header too large (22 bytes)");
    std::fs::remove_file(&file).unwrap();
    insta::assert_snapshot!(error(dir.path()), @"DIR is no model: expected a .gguf file, or a folder with config.json, tokenizer.json and model.safetensors");
}

#[test]
fn missing_misshaped_and_unexpected_tensors_are_named() {
    let dir = model();
    let change = |key: &str, value: serde_json::Value| {
        configure(dir.path(), &[(key, value)]);
        error(dir.path())
    };
    insta::assert_snapshot!(change("num_hidden_layers", json!(3)), @"DIR is damaged or no model file: tensor model.layers.2.input_layernorm.weight is missing");
    insta::assert_snapshot!(change("vocab_size", json!(300)), @"DIR/model.safetensors: the shape of model.embed_tokens.weight is [259, 32], allowed: [300, 32] by config.json");
    assert!(change("num_hidden_layers", json!(1)).contains("tensor is model.layers.1."));
}

#[test]
fn a_bias_that_the_family_does_not_use_is_refused() {
    let dir = model_folder(&tiny_with(&[("model_type", json!("qwen2"))]), 3);
    configure(dir.path(), &[]);
    let message = error(dir.path());
    let bias = "tensor is model.layers.0.self_attn.k_proj.bias";
    assert!(message.contains(bias), "{message}");
}

#[test]
fn an_index_cannot_lead_out_of_its_folder() {
    let dir = model();
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    assert!(error(dir.path()).starts_with("DIR is no model: expected"));
    index(dir.path(), "a", "../x.safetensors");
    assert!(error(dir.path()).contains("weight_map names \"../x.safetensors\""));
}

/// Changes one f32 of the single weight file, by its place from the end.
fn poke(dir: &Path, from_end: usize, value: f32) {
    let file = dir.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() - 4 * from_end;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();
}

#[test]
fn nan_and_infinity_are_found_at_load_and_large_numbers_are_not() {
    let dir = model();
    // The last norm is the last tensor.
    poke(dir.path(), 1, f32::NAN);
    insta::assert_snapshot!(error(dir.path()), @"DIR/model.safetensors is damaged or no model file: tensor model.norm.weight holds NaN or infinity in its file");
    for n in 1..=32 {
        poke(dir.path(), n, 3e38);
    }
    let model_config = ModelConfig::read(dir.path()).unwrap();
    assert!(load(dir.path(), &model_config, Kind::Float, None, &on_cpu()).is_ok());
    // The first number of the first tensor.
    let bytes = std::fs::read(dir.path().join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let n_data = bytes.len() - 8 - usize::try_from(header).unwrap();
    poke(dir.path(), n_data / 4, 1e6);
    let error = load(dir.path(), &model_config, Kind::Half, None, &on_cpu()).unwrap_err();
    let text = "tensor model.embed_tokens.weight holds NaN or infinity in f16, whose largest number is 65504";
    assert!(error.to_string().ends_with(text), "{error}");
}

#[test]
fn a_truncated_shard_is_named() {
    let dir = model();
    let whole = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&whole).unwrap();
    std::fs::remove_file(&whole).unwrap();
    let shard = "model-00001-of-00001.safetensors";
    std::fs::write(dir.path().join(shard), &bytes[..bytes.len() - 100]).unwrap();
    index(dir.path(), "model.norm.weight", shard);
    insta::assert_snapshot!(error(dir.path()), @"DIR/model-00001-of-00001.safetensors is damaged or no model file: it ends after 109452 bytes, before its tensors do: truncated, fetch it again");
    std::fs::remove_file(dir.path().join(shard)).unwrap();
    insta::assert_snapshot!(error(dir.path()), @"cannot read DIR/model-00001-of-00001.safetensors: No such file or directory (os error 2)");
}

/// What `config.json` and the files do to each other, in the words that a user reads.
#[test]
fn what_does_not_fit_together_is_told_in_words() {
    let dir = model();
    let with = |key: &str, value: serde_json::Value| {
        configure(dir.path(), &[(key, value)]);
        let loaded = Model::load(dir.path(), Kind::Float, &Devices::cpu());
        let message = loaded.unwrap_err().to_string();
        message.replace(&dir.path().display().to_string(), "DIR")
    };
    let longrope = json!({"rope_type": "longrope", "factor": 2.0});
    let messages = [
        with("model_type", json!("gemma2")),
        with("num_hidden_layers", json!(3)),
        with("num_hidden_layers", json!(1)),
        with("intermediate_size", json!(65)),
        with("rope_scaling", longrope),
        with("quantization_config", json!({"bits": 4})),
    ];
    insta::assert_snapshot!(messages.join("\n"), @r#"
    DIR/config.json: model_type is "gemma2" (soft caps on scores and logits are not supported), allowed: llama, mistral, qwen2, qwen3, qwen3_5, qwen3_5_text, gemma3, gemma3_text (dense text models)
    DIR is damaged or no model file: tensor model.layers.2.input_layernorm.weight is missing
    DIR/model.safetensors: tensor is model.layers.1.input_layernorm.weight, allowed: the tensors that config.json calls for
    DIR/model.safetensors: the shape of model.layers.0.mlp.gate_proj.weight is [64, 32], allowed: [65, 32] by config.json
    DIR/config.json: rope_scaling.rope_type is "longrope", allowed: default, linear, llama3, yarn
    DIR/config.json: quantization_config is {"bits":4}, allowed: absent (bf16, f16 or f32 weights)
    "#);
}

#[test]
fn a_fingerprint_is_of_numbers_and_not_of_what_is_written_beside_them() {
    let dir = model();
    let of = || fingerprint(dir.path(), &ModelConfig::read(dir.path()).unwrap()).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        configure(dir.path(), &[(key, value)]);
        of()
    };
    let first = of();
    for (key, value) in [
        ("transformers_version", json!("9.9")),
        ("max_position_embeddings", json!(4096)),
        ("eos_token_id", json!([1, 2])),
        ("rope_scaling", json!(null)),
    ] {
        assert_eq!(with(key, value), first, "{key}");
    }
    for (key, value) in [
        ("rope_theta", json!(5e5)),
        ("rms_norm_eps", json!(1e-6)),
        ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
    ] {
        assert_ne!(with(key, value), first, "{key}");
    }
    with("rope_scaling", json!(null));
    poke(dir.path(), 1, 0.5);
    assert_ne!(of(), first);
}

#[test]
fn f16_weights_compute_nearly_what_f32_ones_do() {
    let dir = model();
    let logits = |kind: Kind| {
        let model = Model::load(dir.path(), kind, &Devices::cpu()).unwrap();
        assert_eq!(model.weights.embed.kind().unwrap(), kind);
        forward(&model, &[10, 200, 33, 258, 1], None)
    };
    let distance = distance(&logits(Kind::Half), &logits(Kind::Float));
    assert!(distance < 1e-2, "{distance:e}");
}

#[test]
fn only_regular_files_of_a_model_folder_are_read() {
    let config = ModelConfig::read(model().path()).unwrap();
    let index = "model.safetensors.index.json";
    for name in ["model.safetensors", index, "config.json", "model.gguf"] {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let error = match name {
            "config.json" => ModelConfig::read(dir.path()).unwrap_err().to_string(),
            "model.gguf" => gguf::directory(&pipe, dir.path()).unwrap_err().to_string(),
            _ => fingerprint(dir.path(), &config).unwrap_err().to_string(),
        };
        assert!(error.ends_with("it is no regular file"), "{error}");
    }
}
