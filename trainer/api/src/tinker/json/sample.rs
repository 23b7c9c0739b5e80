//! Samplers.

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::{ModelInput, TensorData};
use crate::tinker::{SamplerId, TinkerSessionId};

/// The most probable ids of one position, and their log-probabilities.
pub type TopK = Vec<(u32, f32)>;

/// Why a continuation ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The sequence ended at a stop token or stop text.
    #[default]
    Stop,
    /// It reached `max_tokens`.
    Length,
}

/// `POST create_sampling_session`, answered immediately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_sampling_session")]
pub struct CreateSamplingSession {
    pub session_id: TinkerSessionId,
    /// The sampler's number in its session, from 0. Ephemeral saves count too.
    pub sampling_session_seq_id: u32,
    /// The base model, if it is sampled unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,
    /// Or saved weights, `tinker://…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_path: Option<String>,
}

/// Answer to [`CreateSamplingSession`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_sampling_session")]
pub struct SamplingSession {
    /// `{session}:sample:{n}`.
    pub sampling_session_id: SamplerId,
}

/// `GET samplers/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerInfo {
    pub sampler_id: SamplerId,
    pub base_model: String,
    /// The path of the weights; null is the base model.
    pub model_path: Option<String>,
}

/// `POST asample`: a promise of [`JsonSample`], or of its protobuf form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct SampleCall {
    #[serde(default = "one")]
    pub num_samples: u32,
    /// The tokens that the model reads.
    pub prompt: ModelInput,
    /// How they are drawn.
    pub sampling_params: TinkerSamplingParams,
    /// Without a sampler: the base model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,
    /// Saved weights, if there is no sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_session_id: Option<SamplerId>,
    /// The number of the call, from 0, in any order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_id: Option<u64>,
    /// Whether to return log-probabilities of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<bool>,
    /// The number of most probable ids to return at each token of the prompt.
    #[serde(default)]
    pub topk_prompt_logprobs: u32,
    /// The number of most probable ids to return at each sampled token.
    #[serde(default)]
    pub topk_sample_logprobs: u32,
    /// Ids whose log-probabilities are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_prompt_logprobs: Option<TensorData>,
    /// The number of ids to draw at each position of the prompt.
    #[serde(default)]
    pub prompt_alt_tokens_k: u32,
    /// Scores only the last tokens of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs_last_n: Option<u32>,
    /// Data for losses that the server computes from its own records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_stability_info: Option<bool>,
}

fn one() -> u32 {
    1
}

/// The sampling settings of continuations.
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TinkerSamplingParams {
    /// The most new tokens. If absent, the sequence may go to the end of the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The seed of the first continuation. The others count up from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The stop condition. If absent, the model's own end tokens; an empty list means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<SampleStop>,
    /// 0 means greedy.
    #[default(1.0)]
    pub temperature: f64,
    /// The number of most probable ids to draw from; -1 switches it off.
    #[default(-1)]
    pub top_k: i64,
    /// The most probable ids with this total probability are drawn from; 1 switches it off.
    #[default(1.0)]
    pub top_p: f64,
}

/// A condition that ends a continuation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a text, a list of texts or a list of token ids")]
pub enum SampleStop {
    Text(String),
    /// Tokens; an empty list has no type, and nothing ends the continuation.
    Tokens(Vec<u32>),
    Texts(Vec<String>),
}

/// The result of [`SampleCall`] for who does not read protobuf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct JsonSample {
    /// The sequences, as many as the request asks for.
    pub sequences: Vec<JsonSequence>,
    /// The log-probability of each prompt token; null for a token that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<f32>>>,
    /// The most probable ids at each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topk_prompt_logprobs: Option<Vec<Option<TopK>>>,
    /// The number of the prompt's tokens from the cache.
    #[serde(default)]
    pub prompt_cache_hit_tokens: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JsonSequence {
    pub stop_reason: StopReason,
    pub tokens: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<f32>>,
    /// The most probable ids at each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topk_logprobs: Option<Vec<Option<TopK>>>,
    /// The id that the promise gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<String>,
}
