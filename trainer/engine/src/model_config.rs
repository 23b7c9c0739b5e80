//! What a `config.json` says about a model, checked once.
//!
//! The four families differ in few places: Qwen2 has biases on q, k and v; Qwen3 normalises each
//! head of q and k; head sizes may be free of the hidden size. Everything else is one Llama.
//! What this engine would compute wrongly is refused here by name, before a weight is read.

mod error;
mod fields;
mod rope;

use std::path::Path;

use serde_json::Value;

pub use self::error::ModelConfigError;
use self::fields::Fields;
pub use self::rope::RopeScaling;

/// Model architectures that one [`layer_forward`](crate::layer::layer_forward) covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2.
    Llama,
    /// Mistral (dense).
    Mistral,
    /// Qwen2 and Qwen2.5 (dense).
    Qwen2,
    /// Qwen3 (dense).
    Qwen3,
}

impl Architecture {
    /// The `model_type` of config.json.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// Shapes and constants of one model.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent in config.json"
)]
pub struct ModelConfig {
    /// Which architecture.
    pub architecture: Architecture,
    /// Tokens in the embedding.
    pub vocab: i64,
    /// Width of the residual stream.
    pub hidden: i64,
    /// Width inside the MLP.
    pub intermediate: i64,
    /// Number of layers.
    pub n_layers: usize,
    /// Query heads.
    pub n_heads: i64,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: i64,
    /// Size of one head; even.
    pub head_dim: i64,
    /// RMSNorm epsilon.
    pub norm_eps: f64,
    /// Rotary base.
    pub rope_theta: f64,
    /// Rotary stretching.
    pub rope_scaling: RopeScaling,
    /// q, k and v have biases.
    pub qkv_bias: bool,
    /// o has a bias.
    pub o_bias: bool,
    /// Each head of q and k is normalised.
    pub qk_norm: bool,
    /// The LM head is the embedding.
    pub tied: bool,
    /// Longest sequence, tokens: a sliding window caps it, since up to the window it changes nothing.
    pub context: usize,
    /// Token ids that end a reply.
    pub eos_ids: Vec<u32>,
}

impl ModelConfig {
    /// Reads `config.json` and, for the ids that end a reply, `generation_config.json` of a model directory.
    ///
    /// # Errors
    /// [`ModelConfigError`] naming file, field, value and what is allowed.
    pub fn read(dir: &Path) -> Result<Self, ModelConfigError> {
        let fields = Fields::read(&dir.join("config.json"))?;
        let mut config = Self::from_fields(&fields)?;
        let generation = dir.join("generation_config.json");
        if generation.exists() {
            for id in Fields::read(&generation)?.ids("eos_token_id")? {
                config.also_ends_with(Some(id));
            }
        }
        Ok(config)
    }

    fn from_fields(c: &Fields) -> Result<Self, ModelConfigError> {
        let architecture = architecture(c)?;
        refuse_unsupported(c)?;
        let hidden = c.size("hidden_size")?;
        let n_heads = c.size("num_attention_heads")?;
        let (n_kv_heads, head_dim) = heads(c, hidden, n_heads)?;
        let attention_bias = c.flag("attention_bias", false)?;
        let eos_ids = c.ids("eos_token_id")?;
        let rope_scaling = rope::scaling(c)?;
        Ok(Self {
            architecture,
            vocab: c.size("vocab_size")?,
            hidden,
            intermediate: c.size("intermediate_size")?,
            n_layers: usize::try_from(c.size("num_hidden_layers")?).unwrap_or(usize::MAX),
            n_heads,
            n_kv_heads,
            head_dim,
            norm_eps: c.positive("rms_norm_eps", Some(1e-6))?,
            rope_theta: rope::theta(c)?,
            rope_scaling,
            qkv_bias: attention_bias || architecture == Architecture::Qwen2,
            o_bias: attention_bias && architecture != Architecture::Qwen2,
            qk_norm: architecture == Architecture::Qwen3,
            tied: c.flag("tie_word_embeddings", false)?,
            context: context(c, architecture, rope_scaling)?,
            eos_ids,
        })
    }

    /// Adds an id that ends a reply.
    pub fn also_ends_with(&mut self, id: Option<u32>) {
        let new = id.filter(|id| !self.eos_ids.contains(id));
        self.eos_ids.extend(new);
    }

    /// Number of weights, the tied LM head counted once.
    pub fn n_params(&self) -> u64 {
        let (q, kv) = (
            self.n_heads * self.head_dim,
            self.n_kv_heads * self.head_dim,
        );
        let mut layer =
            2 * self.hidden + self.hidden * (2 * q + 2 * kv) + 3 * self.hidden * self.intermediate;
        layer += if self.qkv_bias { q + 2 * kv } else { 0 };
        layer += if self.o_bias { self.hidden } else { 0 };
        layer += if self.qk_norm { 2 * self.head_dim } else { 0 };
        let embeddings = self.vocab * self.hidden * if self.tied { 1 } else { 2 };
        (embeddings + self.hidden).unsigned_abs() + layer.unsigned_abs() * self.n_layers as u64
    }
}

fn architecture(c: &Fields) -> Result<Architecture, ModelConfigError> {
    const ALL: [Architecture; 4] = [
        Architecture::Llama,
        Architecture::Mistral,
        Architecture::Qwen2,
        Architecture::Qwen3,
    ];
    let given = c.text("model_type")?;
    ALL.into_iter()
        .find(|a| given == Some(a.name()))
        .ok_or_else(|| {
            c.wrong(
                "model_type",
                "llama, mistral, qwen2, qwen3 (dense text models)",
            )
        })
}

fn refuse_unsupported(c: &Fields) -> Result<(), ModelConfigError> {
    if !matches!(c.text("hidden_act")?, None | Some("silu" | "swish")) {
        return Err(c.wrong("hidden_act", "silu"));
    }
    if c.flag("mlp_bias", false)? {
        return Err(c.wrong("mlp_bias", "false"));
    }
    if c.has("quantization_config") {
        return Err(c.wrong("quantization_config", "absent (bf16, f16 or f32 weights)"));
    }
    Ok(())
}

fn heads(c: &Fields, hidden: i64, n_heads: i64) -> Result<(i64, i64), ModelConfigError> {
    let n_kv_heads = c.size_or("num_key_value_heads", n_heads)?;
    if n_heads % n_kv_heads != 0 {
        let allowed = format!("a divisor of num_attention_heads ({n_heads})");
        return Err(c.wrong("num_key_value_heads", &allowed));
    }
    let head_dim = c.size_or("head_dim", hidden / n_heads)?;
    if head_dim == 0 || head_dim % 2 != 0 {
        return Err(c.wrong("head_dim", "an even number above 0"));
    }
    Ok((n_kv_heads, head_dim))
}

fn context(
    c: &Fields,
    architecture: Architecture,
    rope: RopeScaling,
) -> Result<usize, ModelConfigError> {
    let longest = c.size("max_position_embeddings")?.max(rope.context());
    // Qwen files carry a window that is switched off by `use_sliding_window`.
    let on = match architecture {
        Architecture::Mistral => true,
        Architecture::Qwen2 | Architecture::Qwen3 => c.flag("use_sliding_window", false)?,
        Architecture::Llama => false,
    };
    let window = if on && c.has("sliding_window") {
        c.size("sliding_window")?
    } else {
        longest
    };
    Ok(usize::try_from(longest.min(window)).unwrap_or(usize::MAX))
}

/// Parses a configuration from JSON text, as [`ModelConfig::read`] does from a file (tests, converters).
///
/// # Errors
/// As [`ModelConfig::read`].
pub fn from_json(file: &Path, json: Value) -> Result<ModelConfig, ModelConfigError> {
    ModelConfig::from_fields(&Fields::from_value(file, json)?)
}

#[cfg(test)]
mod tests;
