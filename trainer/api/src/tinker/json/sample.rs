//! Samplers.

use serde::{Deserialize, Serialize};

use super::{ModelInput, TensorData};
use crate::tinker::{SamplerId, SessionId};

/// The likeliest ids of one position, and their log-probabilities.
pub type TopK = Vec<(u32, f32)>;

/// Why a continuation ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// At a token or a text that ends it.
    #[default]
    Stop,
    /// At `max_tokens`.
    Length,
}

/// `POST create_sampling_session`; answered at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_sampling_session")]
pub struct CreateSamplingSession {
    pub session_id: SessionId,
    /// Its number among the session's, from 0; ephemeral saves count with it.
    pub sampling_session_seq_id: u32,
    /// The base model, sampled as it is.
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
    /// Its weights; null is the base.
    pub model_path: Option<String>,
}

/// `POST asample`: a promise of [`JsonSample`], or of its protobuf form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct Sample {
    #[serde(default = "one")]
    pub num_samples: u32,
    /// What the model reads.
    pub prompt: ModelInput,
    /// How they are drawn.
    pub sampling_params: SamplingParams,
    /// Without a sampler: the base model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,
    /// Without a sampler: saved weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_session_id: Option<SamplerId>,
    /// Its call, from 0, in any order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_id: Option<u64>,
    /// Whether to answer log-probabilities of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<bool>,
    /// How many of the likeliest ids at each token of the prompt.
    #[serde(default)]
    pub topk_prompt_logprobs: u32,
    /// How many of the likeliest ids at each sampled token.
    #[serde(default)]
    pub topk_sample_logprobs: u32,
    /// Ids whose log-probabilities are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_prompt_logprobs: Option<TensorData>,
    /// Ids to draw at each position of the prompt.
    #[serde(default)]
    pub prompt_alt_tokens_k: u32,
    /// Score only the last tokens of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs_last_n: Option<u32>,
    /// For losses that the server computes from what it recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_stability_info: Option<bool>,
}

fn one() -> u32 {
    1
}

/// How continuations are drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// At most so many new tokens; to the end of the context when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Of the first continuation; the others count up from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// What ends one: absent the model's own tokens, an empty list nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<SampleStop>,
    /// 0 is greedy.
    pub temperature: f64,
    /// Only the likeliest; -1 is off.
    pub top_k: i64,
    /// Only the likeliest that hold this much probability; 1 is off.
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
    /// Tokens; an empty list is of no kind, and nothing ends it.
    Tokens(Vec<u32>),
    Texts(Vec<String>),
}

/// The result of [`Sample`] for who does not read protobuf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct JsonSample {
    /// As many as were asked for.
    pub sequences: Vec<JsonSequence>,
    /// One per token of the prompt, null where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<f32>>>,
    /// The likeliest at each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topk_prompt_logprobs: Option<Vec<Option<TopK>>>,
    /// Tokens of the prompt that were not computed again.
    #[serde(default)]
    pub prompt_cache_hit_tokens: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JsonSequence {
    pub stop_reason: StopReason,
    pub tokens: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<f32>>,
    /// The likeliest at each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topk_logprobs: Option<Vec<Option<TopK>>>,
    /// As the promise named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<String>,
}
