//! Tests of Gemma 3's configuration files.

use super::*;

/// Returns the files of google/gemma-3-1b-it and, below `text_config`, gemma-3-4b-it, with all their fields.
fn gemma(fields: &[(&str, Value)]) -> Value {
    let json = json!({
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152,
        "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "eos_token_id": [1, 106],
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "rope_theta": 1_000_000,
        "rope_local_base_freq": 10000, "rope_scaling": null, "sliding_window": 512, "sliding_window_pattern": 6,
        "attention_bias": false, "attn_logit_softcapping": null, "final_logit_softcapping": null,
    });
    with_fields(json, fields)
}

#[test]
fn reads_a_gemma_3() {
    let config = from_json(Path::new("c"), gemma(&[])).unwrap();
    assert!(config.tied && config.qk_norm && config.added_norms && !config.is_part);
    assert_eq!(config.norm_weights, NormWeights::LessOne);
    assert_eq!(config.activation, Activation::GeluTanh);
    assert_eq!((config.query_scale, config.context), (1.0, 32768));
    assert!((config.embed_scale - 1152_f64.sqrt()).abs() < 1e-12);
    assert_eq!(config.eos_ids, [1, 106]);
    // Five of six layers have a window.
    let full = [5, 11, 17, 23];
    for (i, layer) in config.layers.iter().enumerate() {
        let is_full = full.contains(&i);
        let wanted = if is_full {
            (None, 1e6)
        } else {
            (Some(512), 1e4)
        };
        assert_eq!((layer.window, layer.rope.theta), wanted, "layer {i}");
    }
    // The model's page gives this number: 1.0 billion.
    assert_eq!(weights::n_params(&config), 999_885_952);
}

/// `<end_of_turn>` ends a reply like `<eos>`, whichever file lists it.
#[test]
fn every_id_that_ends_a_reply_is_taken_from_both_files() {
    let dir = tempfile::tempdir().unwrap();
    let read = |of_config: Value, of_generation: Value| {
        let write = |name, value: Value| std::fs::write(dir.path().join(name), value.to_string());
        write("config.json", gemma(&[("eos_token_id", of_config)])).unwrap();
        let generation = json!({"bos_token_id": 2, "eos_token_id": of_generation});
        write("generation_config.json", generation).unwrap();
        ModelConfig::read(dir.path()).unwrap().eos_ids
    };
    assert_eq!(read(json!(1), json!([1, 106])), [1, 106]);
    assert_eq!(read(json!([1, 106]), json!(1)), [1, 106]);
    assert_eq!(read(Value::Null, json!([106, 1])), [106, 1]);
}

#[test]
fn reads_the_text_part_of_a_gemma_3_that_takes_images() {
    let json = json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 106],
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152},
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
    });
    let config = from_json(Path::new("c"), json).unwrap();
    assert!(config.is_part && config.tied);
    assert_eq!(config.eos_ids, [1, 106]);
    assert_eq!((config.vocab, config.head_dim), (262_208, 256));
    assert_eq!((config.n_heads, config.n_kv_heads), (8, 4));
    let layer = |window, theta, scaling| LayerSpec {
        window,
        rope: RopeSpec { theta, scaling },
    };
    assert_eq!(config.layers[0], layer(Some(1024), 1e4, RopeScaling::None));
    let stretched = RopeScaling::Linear { factor: 8.0 };
    assert_eq!(config.layers[5], layer(None, 1e6, stretched));
}

#[test]
fn a_gemma_3_of_transformers_5_has_the_same_angles() {
    let parameters = json!({
        "full_attention": {"factor": 8.0, "rope_theta": 2e6, "rope_type": "linear"},
        "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"},
    });
    let types = json!(vec!["sliding_attention"; 26]);
    let config = read(
        gemma(&[("layer_types", types), ("rope_parameters", parameters)]),
        &[],
    )
    .unwrap();
    let (theta, scaling, window) = (5000.0, RopeScaling::None, Some(512));
    let rope = RopeSpec { theta, scaling };
    assert_eq!(config.layers, [LayerSpec { window, rope }; 26]);
}

#[test]
fn what_a_gemma_3_must_not_say_is_refused() {
    let refused = |key: &str, value: Value| {
        let config = from_json(Path::new("c"), gemma(&[(key, value)]));
        config.unwrap_err().to_string()
    };
    let messages = [
        refused("final_logit_softcapping", json!(30.0)),
        refused("attn_logit_softcapping", json!(50.0)),
        refused("hidden_activation", json!("silu")),
        refused("use_bidirectional_attention", json!(true)),
        refused("sliding_window", Value::Null),
        refused("layer_types", json!(["full_attention"])),
        refused("layer_types", json!(vec!["chunked_attention"; 26])),
        refused(
            "rope_parameters",
            json!({"rope_type": "default", "rope_theta": 1e6}),
        ),
        refused(
            "rope_scaling",
            json!({"rope_type": "dynamic", "factor": 2.0}),
        ),
        refused("query_pre_attn_scalar", json!(0)),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
