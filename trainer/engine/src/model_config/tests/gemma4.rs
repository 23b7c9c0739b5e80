//! Gemma 4: what its layers differ in, and what must not be said.

use super::*;
use crate::testing::tiny_gemma4;

fn read_gemma(fields: &[(&str, Value)]) -> Result<ModelConfig> {
    from_json(Path::new("c"), with_fields(tiny_gemma4(), fields))
}

/// With fields of the published 31B, text and images.
#[test]
fn reads_a_gemma_4_whose_keys_are_values() {
    let json = json!({
        "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "eos_token_id": [1, 106],
        "vision_config": {"model_type": "gemma4_vision"}, "audio_config": null,
        "text_config": {
            "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60,
            "num_attention_heads": 32, "num_key_value_heads": 16, "num_global_key_value_heads": 4, "head_dim": 256,
            "global_head_dim": 512, "attention_k_eq_v": true, "hidden_size_per_layer_input": 0, "sliding_window": 1024,
            "num_kv_shared_layers": 0, "final_logit_softcapping": 30.0, "use_bidirectional_attention": "vision",
            "enable_moe_block": false, "num_experts": null, "max_position_embeddings": 262_144,
        },
    });
    let config = from_json(Path::new("c"), json).unwrap();
    assert!(config.is_part && config.tied && config.qk_norm && config.added_norms);
    assert_eq!(config.norm_weights, NormWeights::Plain);
    assert_eq!((config.logit_cap, config.eos_ids.len()), (Some(30.0), 2));
    let spec = config.gemma4.unwrap();
    assert_eq!(config.heads_at(4), KvHeads { n: 16, dim: 256 });
    assert_eq!(config.heads_at(5), KvHeads { n: 4, dim: 512 });
    assert!(spec.has_values(4) && !spec.has_values(5));
    assert!((config.query_scale_at(5) - 512_f64.sqrt()).abs() < 1e-12);
    let rope = |layer: usize| config.layers[layer].rope;
    assert_eq!(rope(4).scaling, RopeScaling::None);
    let (share, factor) = (0.25, 1.0);
    assert_eq!(rope(5).scaling, RopeScaling::Proportional { share, factor });
    assert_eq!((rope(4).theta, rope(5).theta), (1e4, 1e6));
    // So many has transformers' model of this configuration.
    assert_eq!(weights::n_params(&config), 30_697_345_340);
}

/// With fields of the published E2B.
#[test]
fn reads_a_gemma_4_whose_last_layers_attend_to_the_keys_of_others() {
    let kinds = (1..=35).map(|nth| {
        if nth % 5 == 0 {
            "full_attention"
        } else {
            "sliding_attention"
        }
    });
    let json = json!({
        "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
        "num_kv_shared_layers": 20, "use_double_wide_mlp": true, "hidden_size_per_layer_input": 256,
        "layer_types": kinds.collect::<Value>(),
    });
    let config = from_json(Path::new("c"), json).unwrap();
    let at: Vec<usize> = (12..22).map(|layer| config.kv_at(layer)).collect();
    assert_eq!(at, [12, 13, 14, 13, 13, 13, 13, 14, 13, 13]);
    assert!(config.is_shared(13) && config.is_shared(14) && !config.is_shared(12));
    assert_eq!((config.mlp_at(14), config.mlp_at(15)), (6144, 12_288));
    assert_eq!(config.kv_heads_at(15), None);
    // So many has transformers' model of this configuration.
    assert_eq!(weights::n_params(&config), 4_628_569_379);
}

#[test]
fn heads_by_layer_are_those_of_all_layers_that_see_everything() {
    let heads = |n: i64, dim: i64| json!({"head_dim": dim, "num_key_value_heads": n});
    let config = read_gemma(&[(
        "per_layer_config",
        json!({"1": heads(4, 6), "3": heads(4, 6)}),
    )]);
    assert_eq!(config.unwrap().heads_at(3), KvHeads { n: 4, dim: 6 });
    let config = read_gemma(&[("per_layer_config", json!({}))]);
    assert_eq!(config.unwrap().heads_at(3), KvHeads { n: 2, dim: 8 });
}

#[test]
fn what_a_gemma_4_must_not_say_is_refused() {
    let refusal = |key: &str, value: Value| read_gemma(&[(key, value)]).unwrap_err().to_string();
    let rope = |share: f64| {
        let full =
            json!({"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": share});
        json!({"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    };
    let messages = [
        refusal("enable_moe_block", json!(true)),
        refusal("num_experts", json!(128)),
        refusal("use_bidirectional_attention", json!("all")),
        refusal("attn_logit_softcapping", json!(50.0)),
        refusal(
            "layer_types",
            json!([
                "full_attention",
                "full_attention",
                "full_attention",
                "sliding_attention"
            ]),
        ),
        refusal("num_kv_shared_layers", json!(3)),
        refusal("num_global_key_value_heads", json!(3)),
        refusal("global_head_dim", json!(7)),
        refusal("per_layer_config", json!({"1": {"head_dim": 6}})),
        refusal("rope_parameters", rope(1.5)),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
