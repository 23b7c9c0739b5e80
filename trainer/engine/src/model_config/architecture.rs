//! The architectures that this engine computes, and why it refuses others.

use serde_json::json;

use super::fields::ConfigFields;
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
}

pub(super) struct Described {
    pub(super) architecture: Architecture,
    /// The text model's fields. Optional fields have their defaults.
    pub(super) text: ConfigFields,
    /// The text model is a part of one that takes images too.
    pub(super) is_part: bool,
}

/// The `model_type` of a model of text and images, whose text part is Gemma 3.
const GEMMA3_WITH_IMAGES: &str = "gemma3";
const ALLOWED: &str = "llama, mistral, qwen2, qwen3, gemma3, gemma3_text (dense text models)";

impl Architecture {
    const ALL: [Self; 5] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma3,
    ];

    /// The `model_type` of config.json.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3_text",
        }
    }
}

/// Finds the architecture, and the text model's fields within those of the file.
///
/// # Errors
/// An architecture that this engine does not compute.
pub(super) fn described(file: ConfigFields) -> Result<Described> {
    let given = file.text("model_type")?;
    let is_part = given == Some(GEMMA3_WITH_IMAGES);
    let known = Architecture::ALL.into_iter();
    let architecture = match given {
        Some(GEMMA3_WITH_IMAGES) => Some(Architecture::Gemma3),
        given => known
            .into_iter()
            .find(|architecture| given == Some(architecture.name())),
    };
    let Some(architecture) = architecture else {
        let reason = given.and_then(unsupported::reason);
        return Err(file.wrong_because("model_type", reason, ALLOWED));
    };
    let mut text = if is_part { text_part(&file)? } else { file };
    if architecture == Architecture::Gemma3 {
        text.fill_in(gemma3_defaults());
    }
    Ok(Described {
        architecture,
        text,
        is_part,
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
