//! Refuses models that this engine does not compute.

use super::fields::ConfigFields;
use super::rope;
use crate::model_config::fields::Result;

const EXPERTS: &str = "a mixture of experts, which this engine does not compute: train it at Tinker or with SkyRL, and serve it with vLLM";

pub(super) fn reason(model_type: &str) -> Option<&'static str> {
    match model_type {
        "qwen3_next" | "mixtral" | "deepseek_v2" | "deepseek_v3" | "gpt_oss" | "llama4"
        | "llama4_text" => Some(EXPERTS),
        "gemma2" => Some("soft caps on scores and logits are not supported"),
        "gemma3n" | "gemma3n_text" => Some("embeddings of each layer are not supported"),
        "mamba" | "mamba2" | "falcon_mamba" => Some("state space layers are not supported"),
        other if other.contains("moe") => Some(EXPERTS),
        _ => None,
    }
}

/// Refuses fields by which a known architecture computes what this engine does not. `may_cap`: it computes capped logits of this one.
///
/// # Errors
/// The first such field.
pub(super) fn refuse(c: &ConfigFields, may_cap: bool) -> Result<()> {
    let experts = "enable_moe_block";
    if c.flag(experts, false)? {
        return Err(c.wrong_because(experts, Some(EXPERTS), "false"));
    }
    for flag in [
        "mlp_bias",
        "use_bidirectional_attention",
        "is_encoder_decoder",
    ] {
        if c.flag(flag, false)? {
            return Err(c.wrong(flag, "false"));
        }
    }
    for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
        let is_ours = may_cap && cap == "final_logit_softcapping";
        if c.has(cap) && !is_ours {
            return Err(c.wrong(cap, "null (no soft cap)"));
        }
    }
    for experts in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if c.count_or(experts, 0)? > 0 {
            return Err(c.wrong_because(experts, Some(EXPERTS), "0 or absent (dense models)"));
        }
    }
    refuse_quantised(c)?;
    rope::whole_heads(c)?;
    refuse_other_heads(c)
}

/// Refuses quantised weights.
///
/// # Errors
/// The field that says so.
pub(super) fn refuse_quantised(c: &ConfigFields) -> Result<()> {
    for field in ["quantization_config", "compression_config"] {
        if c.has(field) {
            return Err(c.wrong(field, "absent (bf16, f16 or f32 weights)"));
        }
    }
    Ok(())
}

fn refuse_other_heads(c: &ConfigFields) -> Result<()> {
    let Some(classes) = c.texts("architectures")? else {
        return Ok(());
    };
    let is_language_model = |class: &String| {
        let class = class.to_ascii_lowercase();
        class.ends_with("forcausallm") || class.ends_with("forconditionalgeneration")
    };
    if classes.is_empty() || classes.iter().any(is_language_model) {
        return Ok(());
    }
    let allowed = "a language model, whose class ends with ForCausalLM or ForConditionalGeneration";
    Err(c.wrong("architectures", allowed))
}
