//! Sequences, samplers, and the results of forward and forward_backward as SDK 0.24 and older write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use serde_with_macros::skip_serializing_none;
use smart_default::SmartDefault;

use crate::tinker::{ModelId, SamplerId, TinkerSessionId};

/// `POST forward_backward` and `forward` of SDK 0.24 and older.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardBackward {
    /// The input; `forward_input` for forward.
    #[serde(alias = "forward_input")]
    pub forward_backward_input: ForwardBackwardInput,
    pub model_id: ModelId,
    /// The number of the call, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq_id: Option<u32>,
}

/// Sequences and their loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardBackwardInput {
    pub data: Vec<JsonDatum>,
    pub loss_fn: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_fn_config: Option<BTreeMap<String, f64>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JsonDatum {
    /// The tokens that the model reads.
    pub model_input: ModelInput,
    /// The tensors that the loss reads, by name.
    pub loss_fn_inputs: BTreeMap<String, TensorData>,
}

/// A prompt, in pieces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelInput {
    /// The chunks in order.
    pub chunks: Vec<PromptChunk>,
}

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptChunk {
    EncodedText {
        tokens: Vec<u32>,
    },
    Image(Map<String, Value>),
    /// A picture by its address.
    ImageAssetPointer(Map<String, Value>),
    Dmel(Map<String, Value>),
}

/// A tensor as lists.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorData {
    /// The values, row-major. A sparse tensor lists only the values that are not 0.
    pub data: Vec<Number>,
    /// `float32` or `int64`.
    pub dtype: String,
    /// `[N]` if absent.
    pub shape: Option<Vec<usize>>,
    /// The row offsets of a sparse tensor, as in the protobuf form.
    pub sparse_crow_indices: Option<Vec<i64>>,
    /// The column indices of a sparse tensor.
    pub sparse_col_indices: Option<Vec<i64>>,
}

/// The result of forward and forward_backward for SDK 0.24 and older.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JsonTrainOutput {
    pub loss_fn_output_type: String,
    /// The outputs of each datum, by name.
    pub loss_fn_outputs: Vec<BTreeMap<String, TensorData>>,
    /// Metrics, as in the protobuf form.
    pub metrics: BTreeMap<String, f64>,
}

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
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_sampling_session")]
pub struct CreateSamplingSession {
    pub session_id: TinkerSessionId,
    /// The sampler's number in its session, from 0. Ephemeral saves count too.
    pub sampling_session_seq_id: u32,
    /// The base model, if it is sampled unchanged.
    pub base_model: Option<String>,
    /// Or saved weights, `tinker://…`.
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
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct SampleCall {
    #[serde(default = "one")]
    pub num_samples: u32,
    /// The tokens that the model reads.
    pub prompt: ModelInput,
    /// How they are drawn.
    pub sampling_params: TinkerSamplingParams,
    /// Without a sampler: the base model.
    pub base_model: Option<String>,
    /// Saved weights, if there is no sampler.
    pub model_path: Option<String>,
    pub sampling_session_id: Option<SamplerId>,
    /// The number of the call, from 0, in any order.
    pub seq_id: Option<u64>,
    /// Whether to return log-probabilities of the prompt.
    pub prompt_logprobs: Option<bool>,
    /// The number of most probable ids to return at each token of the prompt.
    #[serde(default)]
    pub topk_prompt_logprobs: u32,
    /// The number of most probable ids to return at each sampled token.
    #[serde(default)]
    pub topk_sample_logprobs: u32,
    /// Ids whose log-probabilities are requested.
    pub target_prompt_logprobs: Option<TensorData>,
    /// The number of ids to draw at each position of the prompt.
    #[serde(default)]
    pub prompt_alt_tokens_k: u32,
    /// Scores only the last tokens of the prompt.
    pub prompt_logprobs_last_n: Option<u32>,
    /// Data for losses that the server computes from its own records.
    pub record_stability_info: Option<bool>,
}

fn one() -> u32 {
    1
}

/// The sampling settings of continuations.
#[skip_serializing_none]
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TinkerSamplingParams {
    /// The most new tokens. If absent, the sequence may go to the end of the context.
    pub max_tokens: Option<u32>,
    /// The seed of the first continuation. The others count up from it.
    pub seed: Option<i64>,
    /// The stop condition. If absent, the model's own end tokens; an empty list means none.
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
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "sample")]
pub struct JsonSample {
    /// The sequences, as many as the request asks for.
    pub sequences: Vec<JsonSequence>,
    /// The log-probability of each prompt token; null for a token that has none.
    pub prompt_logprobs: Option<Vec<Option<f32>>>,
    /// The most probable ids at each.
    pub topk_prompt_logprobs: Option<Vec<Option<TopK>>>,
    /// The number of the prompt's tokens from the cache.
    #[serde(default)]
    pub prompt_cache_hit_tokens: u32,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JsonSequence {
    pub stop_reason: StopReason,
    pub tokens: Vec<u32>,
    pub logprobs: Option<Vec<f32>>,
    /// The most probable ids at each.
    pub topk_logprobs: Option<Vec<Option<TopK>>>,
    /// The id that the promise gave.
    pub sequence_id: Option<String>,
}
