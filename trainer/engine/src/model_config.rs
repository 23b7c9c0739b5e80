//! What a `config.json` says about a model, checked once.
//!
//! The families differ in few places: Qwen2 has biases on q, k and v; Qwen3 and Gemma 3 normalise each head of q and k; head
//! sizes may be free of the hidden size; some layers see only what is near; Gemma 3 normalises what a layer adds, too; most
//! layers of Qwen3.5 are gated delta nets, and its attention has a gate; some layers of Gemma 4 have other heads, or none of
//! their own.
//! Everything else is one Llama. What this engine would compute wrongly is refused here by name, before a weight is read.

mod architecture;
mod delta;
mod fields;
mod gemma4;
mod layers;
mod rope;
mod unsupported;

use std::path::Path;

use serde_json::Value;

pub use self::architecture::Architecture;
use self::architecture::{Described, described};
pub use self::delta::DeltaSpec;
use self::fields::ConfigFields;
pub use self::gemma4::{Gemma4Spec, KvHeads};
pub use self::layers::LayerSpec;
pub use self::rope::{RopeScaling, RopeSpec};
use crate::model_config::fields::Result;

/// The activation function of an MLP's gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x sigmoid(x)`.
    Silu,
    /// GELU by its approximation with tanh.
    GeluTanh,
}

/// How an RMS norm's numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormWeights {
    Plain,
    /// Less 1, which is added before they multiply.
    LessOne,
}

/// Shapes and constants of one model.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent in config.json"
)]
pub struct ModelConfig {
    pub architecture: Architecture,
    /// Tokens in the embedding.
    pub vocab: i64,
    /// Width of the residual stream.
    pub hidden: i64,
    /// Width inside the MLP of most layers ([`Self::mlp_at`]).
    pub intermediate: i64,
    pub n_layers: usize,
    /// How each of them attends.
    pub layers: Vec<LayerSpec>,
    pub n_heads: i64,
    /// Key and value heads of most layers ([`Self::heads_at`]); divides `n_heads`.
    pub n_kv_heads: i64,
    /// Size of one of their heads; even.
    pub head_dim: i64,
    /// How many numbers of a head turn with the position, the first ones; even.
    pub rotary: i64,
    /// The layers that are gated delta nets, if there are some; the others attend.
    pub delta: Option<DeltaSpec>,
    /// What layers differ in, if it is a Gemma 4. Its values are normalised, and a number multiplies what each layer gives.
    pub gemma4: Option<Gemma4Spec>,
    /// Logits are `cap * tanh(logit / cap)`.
    pub logit_cap: Option<f64>,
    /// Each query head has a gate beside it, whose sigmoid multiplies what attention gives.
    pub output_gate: bool,
    pub norm_eps: f64,
    /// How the norms' numbers are stored.
    pub norm_weights: NormWeights,
    /// Whether the outputs of attention and MLP are normalised before they are added.
    pub added_norms: bool,
    /// The activation function of the MLP's gate.
    pub activation: Activation,
    /// Multiplies embeddings, rounded to the dtype of the weights.
    pub embed_scale: f64,
    /// A factor of the queries beside `1 / sqrt(head_dim)` ([`Self::query_scale_at`]).
    pub query_scale: f64,
    /// q, k and v have biases.
    pub qkv_bias: bool,
    /// o has a bias.
    pub o_bias: bool,
    /// Each head of q and k is normalised.
    pub qk_norm: bool,
    /// The LM head is the embedding.
    pub tied: bool,
    /// Whether this is the text part of a model that takes images too. Its tensors and modules have other names.
    pub is_part: bool,
    pub context: usize,
    /// Token ids that end a reply.
    pub eos_ids: Vec<u32>,
}

impl ModelConfig {
    /// Reads `config.json` and, for the ids that end a reply, `generation_config.json` of a model directory.
    ///
    /// # Errors
    /// [`metaclaw_trainer_text::ModelFileError`] naming file, field, value and what is allowed.
    pub fn read(dir: &Path) -> Result<Self> {
        let fields = ConfigFields::read(&dir.join("config.json"))?;
        let mut config = Self::from_fields(fields)?;
        let generation = dir.join("generation_config.json");
        if generation.exists() {
            for id in ConfigFields::read(&generation)?.ids("eos_token_id")? {
                config.also_ends_with(Some(id));
            }
        }
        Ok(config)
    }

    fn from_fields(file: ConfigFields) -> Result<Self> {
        let Described {
            architecture,
            text: c,
            is_part,
            rotary,
        } = described(file)?;
        let is_gemma4 = architecture == Architecture::Gemma4;
        unsupported::refuse(&c, is_gemma4)?;
        let is_gemma = is_gemma4 || architecture == Architecture::Gemma3;
        let is_qwen35 = architecture == Architecture::Qwen35;
        let hidden = c.size("hidden_size")?;
        let n_heads = c.size("num_attention_heads")?;
        let (n_kv_heads, head_dim) = heads(&c, hidden, n_heads)?;
        let attention_bias = c.flag("attention_bias", false)?;
        let n_layers = usize::try_from(c.size("num_hidden_layers")?).unwrap_or(usize::MAX);
        let layers = layers::read(&c, architecture, n_layers)?;
        Ok(Self {
            architecture,
            vocab: c.size("vocab_size")?,
            hidden,
            intermediate: c.size("intermediate_size")?,
            n_layers,
            n_heads,
            n_kv_heads,
            head_dim,
            rotary: rope::turned(&c, rotary, head_dim)?,
            delta: is_qwen35
                .then(|| DeltaSpec::read(&c, n_layers))
                .transpose()?,
            gemma4: is_gemma4
                .then(|| Gemma4Spec::read(&c, &layers, n_heads))
                .transpose()?,
            logit_cap: c
                .has(LOGIT_CAP)
                .then(|| c.positive(LOGIT_CAP, None))
                .transpose()?,
            output_gate: is_qwen35,
            norm_eps: c.positive("rms_norm_eps", Some(1e-6))?,
            norm_weights: match architecture {
                Architecture::Gemma3 | Architecture::Qwen35 => NormWeights::LessOne,
                _ => NormWeights::Plain,
            },
            added_norms: is_gemma,
            activation: activation(&c, architecture)?,
            embed_scale: if is_gemma {
                (hidden as f64).sqrt()
            } else {
                1.0
            },
            query_scale: query_scale(&c, architecture, head_dim)?,
            qkv_bias: attention_bias || architecture == Architecture::Qwen2,
            o_bias: attention_bias && architecture != Architecture::Qwen2,
            qk_norm: is_gemma || is_qwen35 || architecture == Architecture::Qwen3,
            tied: c.flag("tie_word_embeddings", false)?,
            is_part,
            context: context(&c, &layers)?,
            layers,
            eos_ids: c.ids("eos_token_id")?,
        })
    }

    /// Adds an id that ends a reply.
    pub fn also_ends_with(&mut self, id: Option<u32>) {
        let new = id.filter(|id| !self.eos_ids.contains(id));
        self.eos_ids.extend(new);
    }

    /// The heads whose keys and values a layer has of its own.
    pub fn kv_heads_at(&self, layer: usize) -> Option<KvHeads> {
        let has_own = self.net_at(layer).is_none() && self.kv_at(layer) == layer;
        has_own.then(|| self.heads_at(layer))
    }

    /// The heads of a layer that attends.
    pub fn heads_at(&self, layer: usize) -> KvHeads {
        let usual = KvHeads {
            n: self.n_kv_heads,
            dim: self.head_dim,
        };
        let own = self.gemma4.and_then(|it| it.heads_at(layer));
        own.unwrap_or(usual)
    }

    /// The heads of all kinds of layers.
    pub fn all_heads(&self) -> impl Iterator<Item = KvHeads> {
        (0..self.n_layers).map(move |layer| self.heads_at(layer))
    }

    /// The layer whose keys and values a layer attends to: most attend to their own.
    pub fn kv_at(&self, layer: usize) -> usize {
        self.gemma4.map_or(layer, |it| it.kv_at(layer))
    }

    /// The factor of a layer's queries beside the `1 / sqrt(head size)`, which Gemma 4 does without.
    pub fn query_scale_at(&self, layer: usize) -> f64 {
        match self.gemma4 {
            Some(_) => (self.heads_at(layer).dim as f64).sqrt(),
            None => self.query_scale,
        }
    }

    /// Whether other layers attend to the keys and values of a layer.
    pub fn is_shared(&self, layer: usize) -> bool {
        self.gemma4.is_some() && (layer + 1..self.n_layers).any(|it| self.kv_at(it) == layer)
    }

    /// Width inside the MLP of a layer.
    pub fn mlp_at(&self, layer: usize) -> i64 {
        let own = self.gemma4.and_then(|it| it.mlp_at(layer));
        own.unwrap_or(self.intermediate)
    }

    /// Width inside the MLP of the widest layer.
    pub fn widest_mlp(&self) -> i64 {
        let own = self
            .gemma4
            .and_then(|it| it.mlp_at(self.n_layers.saturating_sub(1)));
        own.unwrap_or(self.intermediate)
    }

    /// The sizes of a layer that is a gated delta net.
    pub fn net_at(&self, layer: usize) -> Option<DeltaSpec> {
        self.delta.filter(|net| net.is_at(layer))
    }
}

fn activation(c: &ConfigFields, architecture: Architecture) -> Result<Activation> {
    let (field, name, activation) = match architecture {
        Architecture::Gemma3 | Architecture::Gemma4 => (
            "hidden_activation",
            "gelu_pytorch_tanh",
            Activation::GeluTanh,
        ),
        _ => ("hidden_act", "silu", Activation::Silu),
    };
    let is_known = |given: &str| given == name || (name == "silu" && given == "swish");
    if c.text(field)?.is_none_or(is_known) {
        Ok(activation)
    } else {
        Err(c.wrong(field, name))
    }
}

const LOGIT_CAP: &str = "final_logit_softcapping";

/// Gemma 3 divides scores by the root of a separate number in place of `head_dim`.
fn query_scale(c: &ConfigFields, architecture: Architecture, head_dim: i64) -> Result<f64> {
    if architecture != Architecture::Gemma3 {
        return Ok(1.0);
    }
    let scalar = c.positive("query_pre_attn_scalar", None)?;
    Ok((head_dim as f64 / scalar).sqrt())
}

fn heads(c: &ConfigFields, hidden: i64, n_heads: i64) -> Result<(i64, i64)> {
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

/// Longest sequence, which some stretchings of angles say by themselves.
fn context(c: &ConfigFields, layers: &[LayerSpec]) -> Result<usize> {
    let stretched = layers.iter().map(|layer| layer.rope.scaling.context());
    let longest = c
        .size("max_position_embeddings")?
        .max(stretched.max().unwrap_or(0));
    Ok(usize::try_from(longest).unwrap_or(usize::MAX))
}

/// Parses a configuration from JSON text, as [`ModelConfig::read`] does from a file (tests, converters).
///
/// # Errors
/// As [`ModelConfig::read`].
pub fn from_json(file: &Path, json: Value) -> Result<ModelConfig> {
    ModelConfig::from_fields(ConfigFields::from_value(file, json)?)
}

#[cfg(test)]
mod tests;
