mod gemma3;
mod unsupported;

use super::*;
use serde_json::json;

fn base() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 100, "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "eos_token_id": [2, 3],
        "hidden_act": "silu", "tie_word_embeddings": true, "rope_scaling": null,
    })
}

fn with(key: &str, value: Value) -> Result<ModelConfig, ModelConfigError> {
    let mut json = base();
    json[key] = value;
    from_json(Path::new("m/config.json"), json)
}

fn refusal(key: &str, value: Value) -> String {
    with(key, value).unwrap_err().to_string()
}

#[test]
fn reads_a_llama() {
    let config = with("model_type", json!("llama")).unwrap();
    assert_eq!(
        (config.head_dim, config.n_kv_heads, config.context),
        (4, 2, 64)
    );
    assert_eq!(config.eos_ids, [2, 3]);
    assert!(config.tied && !config.qkv_bias && !config.qk_norm);
    // The sum is: embedding 1600 + final norm 16 + 2 layers of (2*16 norms + 16*48 attention + 3*16*32 MLP).
    assert_eq!(config.n_params(), 1600 + 16 + 2 * (32 + 768 + 1536));
}

#[test]
fn biases_and_norms_follow_the_architecture() {
    let qwen2 = with("model_type", json!("qwen2")).unwrap();
    assert!(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.qk_norm);
    let qwen3 = with("model_type", json!("qwen3")).unwrap();
    assert!(!qwen3.qkv_bias && qwen3.qk_norm);
    let llama = with("attention_bias", json!(true)).unwrap();
    assert!(llama.qkv_bias && llama.o_bias);
}

#[test]
fn rope_is_read_in_both_forms() {
    let old = with("rope_scaling", json!({"type": "linear", "factor": 2.0})).unwrap();
    assert_eq!(
        old.layers[1].rope.scaling,
        RopeScaling::Linear { factor: 2.0 }
    );
    let new = with(
        "rope_parameters",
        json!({"rope_type": "default", "rope_theta": 5e5}),
    )
    .unwrap();
    let rope = RopeSpec {
        theta: 5e5,
        scaling: RopeScaling::None,
    };
    assert_eq!(new.layers[0], LayerSpec { window: None, rope });
}

#[test]
fn yarn_is_read_with_its_defaults() {
    let given = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32});
    let config = with("rope_scaling", given).unwrap();
    let attention = 0.1 * 4_f64.ln() + 1.0;
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original: 32.0,
        whole_pairs: true,
        attention,
    };
    assert_eq!(
        (config.layers[0].rope.scaling, config.context),
        (expected, 128)
    );
    let given = json!({"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0});
    let config = with("rope_scaling", given).unwrap();
    let RopeScaling::Yarn {
        attention,
        original,
        ..
    } = config.layers[0].rope.scaling
    else {
        panic!("{:?}", config.layers[0]);
    };
    assert_eq!((attention, original, config.context), (1.0, 64.0, 256));
    let swapped = json!({"rope_type": "yarn", "factor": 4.0, "beta_fast": 0.5});
    assert_eq!(
        refusal("rope_scaling", swapped),
        "m/config.json: rope_scaling.beta_fast is 0.5, allowed: at least beta_slow (1)"
    );
}

fn windows(config: &ModelConfig) -> Vec<Option<usize>> {
    config.layers.iter().map(|layer| layer.window).collect()
}

#[test]
fn layers_with_a_window_are_those_that_transformers_gives_one() {
    let of = |fields: &[(&str, Value)]| {
        let mut json = base();
        for (key, value) in fields {
            json[*key] = value.clone();
        }
        windows(&from_json(Path::new("c"), json).unwrap())
    };
    let mistral = ("model_type", json!("mistral"));
    let qwen = ("model_type", json!("qwen3"));
    let (window, none) = (
        ("sliding_window", json!(32)),
        ("sliding_window", Value::Null),
    );
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
        assert_eq!(of(&fields), wanted, "{fields:?}");
    }
}

#[test]
fn refusals_name_file_field_value_and_what_is_allowed() {
    assert_eq!(
        refusal("model_type", json!("gpt2")),
        "m/config.json: model_type is \"gpt2\", allowed: llama, mistral, qwen2, qwen3, gemma3, gemma3_text (dense text models)"
    );
    assert_eq!(
        refusal(
            "rope_scaling",
            json!({"rope_type": "longrope", "factor": 4.0})
        ),
        "m/config.json: rope_scaling.rope_type is \"longrope\", allowed: default, linear, llama3, yarn"
    );
    assert_eq!(
        refusal("num_key_value_heads", json!(3)),
        "m/config.json: num_key_value_heads is 3, allowed: a divisor of num_attention_heads (4)"
    );
    assert_eq!(
        refusal("hidden_size", json!(-1)),
        "m/config.json: hidden_size is -1, allowed: a whole number from 1 to 1048576"
    );
    assert_eq!(
        refusal("vocab_size", Value::Null),
        "m/config.json: vocab_size is missing, allowed: a whole number from 1 to 1048576"
    );
    assert!(refusal("mlp_bias", json!(true)).contains("mlp_bias is true, allowed: false"));
    assert!(refusal("head_dim", json!(5)).contains("head_dim is 5"));
}

#[test]
fn a_file_that_is_no_object_is_named() {
    let error = from_json(Path::new("m/config.json"), json!([1])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "m/config.json is not a JSON object: it holds [1]"
    );
}
