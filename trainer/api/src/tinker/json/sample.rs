//! Samplers.

use serde::{Deserialize, Serialize};

use super::{ModelInput, TensorData};
use crate::tinker::{SamplerId, SessionId};

/// The most probable ids of one position, and their log-probabilities.
pub type TopK = Vec<(u32, f32)>;

/// Why a continuation ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// A token or a text ended it.
    #[default]
    Stop,
    /// It reached `max_tokens`.
    Length,
}

/// `POST create_sampling_session`, answered at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_sampling_session")]
pub struct CreateSamplingSession {
    pub session_id: SessionId,
    /// Its number within the session, from 0; ephemeral saves count with it.
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
pub struct Sampler {
    pub sampler_id: SamplerId,
    pub base_model: String,
    /// Its weights; null for the base model.
    pub model_path: Option<String>,
}

/// `POST asample`: a promise of [`JsonSample`], or of its protobuf form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct Sample {
    #[serde(default = "one")]
    pub num_samples: u32,
    /// The model's input.
    pub prompt: ModelInput,
    /// The sampling settings.
    pub sampling_params: SamplingParams,
    /// The base model, if there is no sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,
    /// Saved weights, if there is no sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_session_id: Option<SamplerId>,
    /// The number of its call, from 0, in any order.
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
    /// For losses that the server computes from its own records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_stability_info: Option<bool>,
}

fn one() -> u32 {
    1
}

/// The sampling settings of continuations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// The largest number of new tokens; up to the end of the context if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The seed of the first continuation; each further one adds 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// What ends a continuation: if absent, the model's own tokens; with an empty list, nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<SampleStop>,
    /// 0 means greedy.
    pub temperature: f64,
    /// The number of most probable ids to draw from; -1 switches it off.
    pub top_k: i64,
    /// The most probable ids with this total probability are drawn from; 1 switches it off.
    pub top_p: f64,
}

// === impl SamplingParams ===

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            max_tokens: None,
            seed: None,
            stop: None,
            temperature: 1.0,
            top_k: -1,
            top_p: 1.0,
        }
    }
}

/// What ends a continuation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a text, a list of texts or a list of token ids")]
pub enum SampleStop {
    Text(String),
    /// Tokens; an empty list has no type, and nothing ends the continuation.
    Tokens(Vec<u32>),
    Texts(Vec<String>),
}

/// The result of [`Sample`] for clients that do not read protobuf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct JsonSample {
    /// As many as were requested.
    pub sequences: Vec<JsonSequence>,
    /// One for each token of the prompt, null if there is none.
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
    /// The name from the promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<String>,
}
