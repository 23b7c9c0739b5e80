//! Tests of what is refused, and of the messages.

use super::*;

/// These are one example each: a model that this engine would compute wrongly is refused before any weights are read.
#[test]
fn what_is_not_supported_says_what_it_is() {
    let of_type = |model_type: &str| refusal("model_type", json!(model_type));
    let of_qwen3 = |key: &str, value: Value| {
        let fields = [("model_type", json!("qwen3")), (key, value)];
        read(base(), &fields).unwrap_err().to_string()
    };
    let rotary = json!({"rope_theta": 1e6, "partial_rotary_factor": 0.25});
    let kinds = || json!(["sliding_attention", "full_attention"]);
    let parts =
        json!({"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}});
    let messages = [
        of_type("qwen3_next"),
        of_type("qwen3_5_moe"),
        of_type("qwen3_moe"),
        of_type("mixtral"),
        of_type("gemma2"),
        of_type("gemma3n"),
        of_type("qwen2_vl"),
        of_qwen3("num_experts", json!(128)),
        of_qwen3("quantization_config", json!({"quant_method": "fp8"})),
        of_qwen3("compression_config", json!({"format": "pack-quantized"})),
        of_qwen3("hidden_act", json!("gelu")),
        of_qwen3("partial_rotary_factor", json!(0.5)),
        of_qwen3("rope_parameters", rotary),
        of_qwen3("rope_parameters", parts),
        of_qwen3("rope_scaling", json!({"type": "su", "factor": 2.0})),
        of_qwen3("layer_types", json!(["linear_attention", "full_attention"])),
        of_qwen3("layer_types", kinds()),
        of_qwen3("architectures", json!(["Qwen3ForSequenceClassification"])),
        of_qwen3("attention_bias", json!("no")),
        refusal("layer_types", kinds()),
        refusal("is_encoder_decoder", json!(true)),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
