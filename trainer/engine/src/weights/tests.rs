use super::*;
use crate::device::Devices;
use crate::model::Model;
use crate::testing::{tiny_config, write_model, write_tiny_model};
use serde_json::json;

fn on_cpu() -> Placement {
    Placement::on(Device::Cpu)
}

fn error(dir: &Path) -> String {
    let model_config = ModelConfig::read(dir).unwrap();
    let message = load(dir, &model_config, Kind::Float, None, &on_cpu())
        .unwrap_err()
        .to_string();
    message.replace(&dir.display().to_string(), "DIR")
}

fn model() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_model(dir.path(), 3).unwrap();
    dir
}

#[test]
fn a_stored_dtype_is_mapped_and_another_converted() {
    let dir = model();
    let model_config = ModelConfig::read(dir.path()).unwrap();
    let f32 = load(dir.path(), &model_config, Kind::Float, None, &on_cpu()).unwrap();
    let bf16 = load(dir.path(), &model_config, Kind::BFloat16, None, &on_cpu()).unwrap();
    assert_eq!(bf16.embed.kind().unwrap(), Kind::BFloat16);
    assert!(bf16.embed.plain().unwrap().to_kind(Kind::Float).allclose(
        &f32.embed.plain().unwrap(),
        1e-2,
        1e-2,
        false
    ));
    let again = load(dir.path(), &model_config, Kind::Float, None, &on_cpu()).unwrap();
    assert!(
        again.layers[1]
            .down
            .weight
            .plain()
            .unwrap()
            .equal(&f32.layers[1].down.weight.plain().unwrap())
    );
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
        let mut config = tiny_config();
        config[key] = value;
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        error(dir.path())
    };
    assert_eq!(
        change("num_hidden_layers", json!(3)),
        "DIR is damaged or no model file: tensor model.layers.2.input_layernorm.weight is missing"
    );
    assert_eq!(
        change("vocab_size", json!(300)),
        "DIR/model.safetensors: the shape of model.embed_tokens.weight is [259, 32], allowed: [300, 32] by config.json"
    );
    assert!(change("num_hidden_layers", json!(1)).contains("tensor is model.layers.1."));
}

#[test]
fn a_bias_that_the_family_does_not_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = tiny_config();
    config["model_type"] = json!("qwen2");
    write_model(dir.path(), &config, 3).unwrap();
    config["model_type"] = json!("llama");
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let message = error(dir.path());
    assert!(
        message.contains("tensor is model.layers.0.self_attn.k_proj.bias"),
        "{message}"
    );
}

#[test]
fn an_index_cannot_lead_out_of_its_folder() {
    let dir = model();
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    assert!(error(dir.path()).starts_with("DIR is no model: expected"));
    let index = json!({"weight_map": {"a": "../x.safetensors"}});
    std::fs::write(
        dir.path().join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
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
    let index = json!({"weight_map": {"model.norm.weight": shard}});
    let file = dir.path().join("model.safetensors.index.json");
    std::fs::write(file, index.to_string()).unwrap();
    insta::assert_snapshot!(error(dir.path()), @"DIR/model-00001-of-00001.safetensors is damaged or no model file: it ends after 109452 bytes, before its tensors do: truncated, fetch it again");
    std::fs::remove_file(dir.path().join(shard)).unwrap();
    insta::assert_snapshot!(error(dir.path()), @"cannot read DIR/model-00001-of-00001.safetensors: No such file or directory (os error 2)");
}

/// What `config.json` and the files do to each other, in the words that a user reads.
#[test]
fn what_does_not_fit_together_is_told_in_words() {
    let dir = model();
    let with = |changes: &[(&str, serde_json::Value)]| {
        let mut config = tiny_config();
        for (key, value) in changes {
            config[*key] = value.clone();
        }
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        let message = Model::load(dir.path(), Kind::Float, &Devices::cpu())
            .unwrap_err()
            .to_string();
        message.replace(&dir.path().display().to_string(), "DIR")
    };
    let messages = [
        with(&[("model_type", json!("gemma2"))]),
        with(&[("num_hidden_layers", json!(3))]),
        with(&[("num_hidden_layers", json!(1))]),
        with(&[("intermediate_size", json!(65))]),
        with(&[(
            "rope_scaling",
            json!({"rope_type": "longrope", "factor": 2.0}),
        )]),
        with(&[("quantization_config", json!({"bits": 4}))]),
    ];
    insta::assert_snapshot!(messages.join("\n"), @r#"
    DIR/config.json: model_type is "gemma2" (soft caps on scores and logits are not supported), allowed: llama, mistral, qwen2, qwen3, gemma3, gemma3_text (dense text models)
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
        let mut config = tiny_config();
        config[key] = value;
        std::fs::write(dir.path().join("config.json"), format!("{config:#}  ")).unwrap();
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
        let ids = Tensor::from_slice(&[10_i64, 200, 33, 258, 1]).unsqueeze(0);
        model
            .logits(&model.forward(&ids, None).unwrap(), None)
            .unwrap()
    };
    let (half, full) = (logits(Kind::Half), logits(Kind::Float));
    let norm = |t: &Tensor| t.to_kind(Kind::Double).norm().double_value(&[]);
    let distance = norm(&(&half - &full)) / norm(&full);
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
