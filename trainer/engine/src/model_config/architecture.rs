//! The architectures that this engine computes, and why it refuses others.

use serde_json::json;

use super::fields::ConfigFields;
use super::rope::{self, PARTIAL};
use super::unsupported;
use crate::model_config::fields::Result;

/// Model architectures that one [`layer_forward`](crate::layer::layer_forward) covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2.
    Llama,
    Mistral,
    /// Qwen2 and Qwen2.5 (dense).
    Qwen2,
    /// Qwen3 (dense).
    Qwen3,
    /// Gemma 3, text.
    Gemma3,
    /// Gemma 4 (dense), text.
    Gemma4,
    /// Qwen3.5 (dense), text.
    Qwen35,
}

pub(super) struct Described {
    pub(super) architecture: Architecture,
    /// The text model's fields. Optional fields have their defaults.
    pub(super) text: ConfigFields,
    /// The text model is a part of one that takes images too.
    pub(super) is_part: bool,
    /// The part of each head that turns with the position.
    pub(super) rotary: f64,
}

/// The `model_type` of models of text and images, whose text part is one of ours.
const WITH_IMAGES: [(&str, Architecture); 3] = [
    ("gemma3", Architecture::Gemma3),
    ("gemma4", Architecture::Gemma4),
    ("qwen3_5", Architecture::Qwen35),
];
const ALLOWED: &str = "llama, mistral, qwen2, qwen3, qwen3_5, qwen3_5_text, gemma3, gemma3_text, gemma4, gemma4_text (dense text models)";
const BIDIRECTIONAL: &str = "use_bidirectional_attention";
const OUTPUT_GATE: &str = "attn_output_gate";
/// Of Qwen3.5, where a file does not say.
const QWEN35_ROTARY: f64 = 0.25;

impl Architecture {
    const ALL: [Self; 7] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma3,
        Self::Gemma4,
        Self::Qwen35,
    ];

    /// The `model_type` of config.json.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3_text",
            Self::Gemma4 => "gemma4_text",
            Self::Qwen35 => "qwen3_5_text",
        }
    }
}

/// Finds the architecture, and the text model's fields within those of the file.
///
/// # Errors
/// An architecture that this engine does not compute.
pub(super) fn described(file: ConfigFields) -> Result<Described> {
    let given = file.text("model_type")?;
    let whole = WITH_IMAGES.iter().find(|(name, _)| given == Some(name));
    let is_part = whole.is_some();
    let is_named = |architecture: &Architecture| given == Some(architecture.name());
    let alone = || Architecture::ALL.into_iter().find(is_named);
    let Some(architecture) = whole.map(|&(_, text)| text).or_else(alone) else {
        let reason = given.and_then(unsupported::reason);
        return Err(file.wrong_because("model_type", reason, ALLOWED));
    };
    let mut text = if is_part { text_part(&file)? } else { file };
    let mut rotary = 1.0;
    if architecture == Architecture::Gemma3 {
        text.fill_in(gemma3_defaults());
    }
    if architecture == Architecture::Gemma4 {
        text.fill_in(gemma4_defaults());
        if text.text(BIDIRECTIONAL)?.is_some_and(|it| it != "vision") {
            let allowed = "null, or \"vision\", which concerns images alone";
            return Err(text.wrong(BIDIRECTIONAL, allowed));
        }
        text.forget(BIDIRECTIONAL, "");
    }
    if architecture == Architecture::Qwen35 {
        text.fill_in(qwen35_defaults());
        let share = |c: &ConfigFields, default| match c.positive(PARTIAL, Some(default))? {
            share if share > 1.0 => Err(c.wrong(PARTIAL, "a number above 0, at most 1")),
            share => Ok(share),
        };
        rotary = share(&text, QWEN35_ROTARY)?;
        if let Some(rope) = text.object(rope::PARAMETERS)? {
            rotary = share(&rope, rotary)?;
        }
        if !text.flag(OUTPUT_GATE, true)? {
            return Err(text.wrong(OUTPUT_GATE, "true"));
        }
        text.forget(PARTIAL, rope::PARAMETERS);
    }
    Ok(Described {
        architecture,
        text,
        is_part,
        rotary,
    })
}

fn text_part(file: &ConfigFields) -> Result<ConfigFields> {
    let missing = || file.wrong("text_config", "an object that describes the text model");
    let mut text = file.object("text_config")?.ok_or_else(missing)?;
    unsupported::refuse_quantised(file)?;
    // These two hold for the whole model.
    text.take_from(file, &["eos_token_id", "tie_word_embeddings"]);
    Ok(text)
}

/// The defaults of transformers' `Gemma3TextConfig`. Files of Gemma 3 leave out fields with these values.
fn gemma3_defaults() -> serde_json::Value {
    json!({
        "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256,
        "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6,
        "eos_token_id": 1, "tie_word_embeddings": true, "sliding_window": 4096, "sliding_window_pattern": 6,
        "rope_theta": 1e6, "rope_local_base_freq": 1e4,
    })
}

/// The defaults of transformers' `Gemma4TextConfig`.
fn gemma4_defaults() -> serde_json::Value {
    json!({
        "vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6, "eos_token_id": 1, "tie_word_embeddings": true, "sliding_window": 512,
        "sliding_window_pattern": 6, "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        },
    })
}

/// The defaults of transformers' `Qwen3_5TextConfig`.
fn qwen35_defaults() -> serde_json::Value {
    json!({
        "vocab_size": 248_320, "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 32,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4,
    })
}
