use super::*;
use crate::testing::{tiny_config, write_model, write_tiny_model};
use serde_json::json;

fn error(dir: &Path) -> String {
    let family = Family::read(dir).unwrap();
    let message = load(dir, &family, Kind::Float).unwrap_err().to_string();
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
    let family = Family::read(dir.path()).unwrap();
    let f32 = load(dir.path(), &family, Kind::Float).unwrap();
    let bf16 = load(dir.path(), &family, Kind::BFloat16).unwrap();
    assert_eq!(bf16.embed.kind(), Kind::BFloat16);
    assert!(
        bf16.embed
            .to_kind(Kind::Float)
            .allclose(&f32.embed, 1e-2, 1e-2, false)
    );
    let again = load(dir.path(), &family, Kind::Float).unwrap();
    assert!(
        again.layers[1]
            .down
            .weight
            .equal(&f32.layers[1].down.weight)
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
