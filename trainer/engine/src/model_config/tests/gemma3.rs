//! Tests of Gemma 3's configuration files.

use super::*;

/// Returns the files of google/gemma-3-1b-it and, below `text_config`, gemma-3-4b-it, with all their fields.
fn gemma(with: &[(&str, Value)]) -> Value {
    let mut json = json!({
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152,
        "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "eos_token_id": [1, 106],
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "rope_theta": 1_000_000,
        "rope_local_base_freq": 10000, "rope_scaling": null, "sliding_window": 512, "sliding_window_pattern": 6,
        "attention_bias": false, "attn_logit_softcapping": null, "final_logit_softcapping": null,
    });
    for (key, value) in with {
        json[*key] = value.clone();
    }
    json
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
        let wanted = if full.contains(&i) {
            (None, 1e6)
        } else {
            (Some(512), 1e4)
        };
        assert_eq!((layer.window, layer.rope.theta), wanted, "layer {i}");
    }
    // The model's page gives this number: 1.0 billion.
    assert_eq!(config.n_params(), 999_885_952);
}

/// `<end_of_turn>` ends a reply like `<eos>`, whichever file lists it.
#[test]
fn every_id_that_ends_a_reply_is_taken_from_both_files() {
    let dir = tempfile::tempdir().unwrap();
    let read = |of_config: Value, of_generation: Value| {
        let config = gemma(&[("eos_token_id", of_config)]);
        let generation = json!({"bos_token_id": 2, "eos_token_id": of_generation});
        for (name, value) in [
            ("config.json", config),
            ("generation_config.json", generation),
        ] {
            std::fs::write(dir.path().join(name), value.to_string()).unwrap();
        }
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
    let sizes = (
        config.vocab,
        config.n_heads,
        config.n_kv_heads,
        config.head_dim,
    );
    assert_eq!(sizes, (262_208, 8, 4, 256));
    let (near, full) = (config.layers[0], config.layers[5]);
    assert_eq!(
        (near.window, near.rope.theta, near.rope.scaling),
        (Some(1024), 1e4, RopeScaling::None)
    );
    let stretched = RopeScaling::Linear { factor: 8.0 };
    assert_eq!(
        (full.window, full.rope.theta, full.rope.scaling),
        (None, 1e6, stretched)
    );
}

#[test]
fn a_gemma_3_of_transformers_5_has_the_same_angles() {
    let new = gemma(&[
        ("layer_types", json!(vec!["sliding_attention"; 26])),
        (
            "rope_parameters",
            json!({
                "full_attention": {"factor": 8.0, "rope_theta": 2e6, "rope_type": "linear"},
                "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"},
            }),
        ),
    ]);
    let config = from_json(Path::new("c"), new).unwrap();
    let rope = RopeSpec {
        theta: 5000.0,
        scaling: RopeScaling::None,
    };
    let window = Some(512);
    assert!(
        config
            .layers
            .iter()
            .all(|&layer| layer == LayerSpec { window, rope })
    );
}

#[test]
fn what_a_gemma_3_must_not_say_is_refused() {
    let refused = |key: &str, value: Value| {
        let json = gemma(&[(key, value)]);
        from_json(Path::new("c"), json).unwrap_err().to_string()
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
