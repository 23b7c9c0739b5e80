mod gemma3;
mod qwen35;
mod unsupported;

use super::*;
use crate::tests::with_fields;
use serde_json::json;

fn base() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 100, "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "eos_token_id": [2, 3],
        "hidden_act": "silu", "tie_word_embeddings": true, "rope_scaling": null,
    })
}

fn read(json: Value, fields: &[(&str, Value)]) -> Result<ModelConfig> {
    from_json(Path::new("m/config.json"), with_fields(json, fields))
}

fn with(key: &str, value: Value) -> ModelConfig {
    read(base(), &[(key, value)]).unwrap()
}

fn refusal(key: &str, value: Value) -> String {
    read(base(), &[(key, value)]).unwrap_err().to_string()
}

#[test]
fn reads_a_llama() {
    let config = with("model_type", json!("llama"));
    assert_eq!((config.head_dim, config.n_kv_heads), (4, 2));
    assert_eq!(config.context, 64);
    assert_eq!(config.eos_ids, [2, 3]);
    assert!(config.tied && !config.qkv_bias && !config.qk_norm);
    // The sum is: embedding 1600 + final norm 16 + 2 layers of (2*16 norms + 16*48 attention + 3*16*32 MLP).
    assert_eq!(config.n_params(), 1600 + 16 + 2 * (32 + 768 + 1536));
}

#[test]
fn biases_and_norms_follow_the_architecture() {
    let qwen2 = with("model_type", json!("qwen2"));
    assert!(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.qk_norm);
    let qwen3 = with("model_type", json!("qwen3"));
    assert!(!qwen3.qkv_bias && qwen3.qk_norm);
    let llama = with("attention_bias", json!(true));
    assert!(llama.qkv_bias && llama.o_bias);
}

#[test]
fn rope_is_read_in_both_forms() {
    let old = with("rope_scaling", json!({"type": "linear", "factor": 2.0}));
    let linear = RopeScaling::Linear { factor: 2.0 };
    assert_eq!(old.layers[1].rope.scaling, linear);
    let parameters = json!({"rope_type": "default", "rope_theta": 5e5});
    let new = with("rope_parameters", parameters);
    let (theta, scaling) = (5e5, RopeScaling::None);
    let rope = RopeSpec { theta, scaling };
    assert_eq!(new.layers[0], LayerSpec { window: None, rope });
}

#[test]
fn yarn_is_read_with_its_defaults() {
    let given = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32});
    let config = with("rope_scaling", given);
    let attention = 0.1 * 4_f64.ln() + 1.0;
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original: 32.0,
        whole_pairs: true,
        attention,
    };
    let scaling = |config: &ModelConfig| config.layers[0].rope.scaling;
    assert_eq!((scaling(&config), config.context), (expected, 128));
    let given = json!({"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0});
    let config = with("rope_scaling", given);
    let has_mscale = matches!(
        scaling(&config),
        RopeScaling::Yarn {
            attention: 1.0,
            original: 64.0,
            ..
        }
    );
    assert!(has_mscale, "{:?}", config.layers[0]);
    assert_eq!(config.context, 256);
    let swapped = json!({"rope_type": "yarn", "factor": 4.0, "beta_fast": 0.5});
    insta::assert_snapshot!(refusal("rope_scaling", swapped), @"m/config.json: rope_scaling.beta_fast is 0.5, allowed: at least beta_slow (1)");
}

fn windows(config: &ModelConfig) -> Vec<Option<usize>> {
    config.layers.iter().map(|layer| layer.window).collect()
}

#[test]
fn layers_with_a_window_are_those_that_transformers_gives_one() {
    let mistral = ("model_type", json!("mistral"));
    let qwen = ("model_type", json!("qwen3"));
    let [window, none] = [json!(32), Value::Null].map(|value| ("sliding_window", value));
    let on = ("use_sliding_window", json!(true));
    let from_1 = ("max_window_layers", json!(1));
    let kinds = json!(["sliding_attention", "full_attention"]);
    let listed = ("layer_types", kinds);
    let (full, near) = (None, Some(32));
    let cases = [
        (vec![window.clone()], [full; 2]),
        (vec![mistral.clone(), window.clone()], [near; 2]),
        (vec![mistral.clone(), none.clone()], [full; 2]),
        (vec![mistral], [Some(4096); 2]),
        (vec![qwen.clone(), window.clone()], [full; 2]),
        (vec![qwen.clone(), window.clone(), on.clone()], [full; 2]),
        (
            vec![qwen.clone(), window.clone(), on.clone(), from_1.clone()],
            [full, near],
        ),
        (vec![qwen.clone(), none, on.clone(), from_1], [full; 2]),
        (vec![qwen, window, on, listed], [near, full]),
    ];
    for (fields, wanted) in cases {
        let config = read(base(), &fields).unwrap();
        assert_eq!(windows(&config), wanted, "{fields:?}");
    }
}

#[test]
fn refusals_name_file_field_value_and_what_is_allowed() {
    let longrope = json!({"rope_type": "longrope", "factor": 4.0});
    let messages = [
        refusal("model_type", json!("gpt2")),
        refusal("rope_scaling", longrope),
        refusal("num_key_value_heads", json!(3)),
        refusal("hidden_size", json!(-1)),
        refusal("vocab_size", Value::Null),
    ];
    insta::assert_snapshot!(messages.join("\n"), @r#"
    m/config.json: model_type is "gpt2", allowed: llama, mistral, qwen2, qwen3, qwen3_5, qwen3_5_text, gemma3, gemma3_text (dense text models)
    m/config.json: rope_scaling.rope_type is "longrope", allowed: default, linear, llama3, yarn
    m/config.json: num_key_value_heads is 3, allowed: a divisor of num_attention_heads (4)
    m/config.json: hidden_size is -1, allowed: a whole number from 1 to 1048576
    m/config.json: vocab_size is missing, allowed: a whole number from 1 to 1048576
    "#);
    assert!(refusal("mlp_bias", json!(true)).contains("mlp_bias is true, allowed: false"));
    assert!(refusal("head_dim", json!(5)).contains("head_dim is 5"));
}

#[test]
fn a_file_that_is_no_object_is_named() {
    let error = read(json!([1]), &[]).unwrap_err();
    insta::assert_snapshot!(error, @"m/config.json is not a JSON object: it holds [1]");
}
