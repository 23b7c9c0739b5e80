//! Qwen3.5: which layers are gated delta nets, and what must not be said.

use super::*;
use crate::tests::{tiny_nets, with_fields};

fn read_net(fields: &[(&str, Value)]) -> Result<ModelConfig> {
    from_json(Path::new("c"), with_fields(tiny_nets(4), fields))
}

fn nets(config: &ModelConfig) -> Vec<bool> {
    let net = config.delta.unwrap();
    (0..config.n_layers).map(|layer| net.is_at(layer)).collect()
}

#[test]
fn layers_are_what_the_list_says_or_all_but_every_nth() {
    let listed = read_net(&[]).unwrap();
    assert_eq!(nets(&listed), [true, false, true, false]);
    assert_eq!((listed.n_attending(), listed.rotary), (2, 4));
    assert!(listed.output_gate && listed.qk_norm && !listed.is_part);
    let every_fourth = read_net(&[("layer_types", Value::Null)]).unwrap();
    assert_eq!(nets(&every_fourth), [true, true, true, false]);
}

/// With files of the published models: 4B, tied, text and images.
#[test]
fn a_model_of_text_and_images_has_its_text_part_within() {
    let json = json!({
        "model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "tie_word_embeddings": true,
        "vision_config": {"model_type": "qwen3_5_vision", "depth": 24},
        "text_config": {
            "model_type": "qwen3_5_text", "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "linear_num_value_heads": 32,
            "max_position_embeddings": 262_144, "eos_token_id": 248_044, "mtp_num_hidden_layers": 1,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10_000_000, "partial_rotary_factor": 0.25,
                "mrope_interleaved": true, "mrope_section": [11, 11, 10],
            },
        },
    });
    let config = from_json(Path::new("c"), json).unwrap();
    assert!(config.is_part && config.tied);
    assert_eq!((config.rotary, config.n_attending()), (64, 8));
    assert_eq!(config.n_params(), 4_205_751_296);
}

#[test]
fn what_a_qwen35_must_not_say_is_refused() {
    let refusal = |key: &str, value: Value| read_net(&[(key, value)]).unwrap_err().to_string();
    let messages = [
        refusal(
            "layer_types",
            json!(["linear_attention", "sliding_attention"]),
        ),
        refusal("linear_num_value_heads", json!(3)),
        refusal("linear_conv_kernel_dim", json!(1)),
        refusal("num_hidden_layers", json!(129)),
        refusal("partial_rotary_factor", json!(0.1)),
        refusal("num_experts", json!(8)),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
