//! The JSON bodies. Fields that the SDK omits are absent; fields that a newer SDK adds are not read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use serde_with_macros::skip_serializing_none;
use smart_default::SmartDefault;

use super::{ModelId, RequestId, SamplerId, TinkerSessionId};
use crate::{DEFAULT_LEARNING_RATE, DEFAULT_RANK};

// Clients: configuration, sessions, capabilities.

/// `POST client/config` and `client/dynamic_config`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientConfigRequest {
    /// For example `0.38.0`.
    #[serde(default)]
    pub sdk_version: String,
}

/// The server's requirements for requests. An absent flag has the SDK's default.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientConfig {
    /// The key is first exchanged for a short-lived token.
    pub pjwt_auth_enabled: Option<bool>,
    /// Whether the chunks of one forward_backward are sent in parallel.
    pub parallel_fwdbwd_chunks: Option<bool>,
    /// Protobuf bodies are compressed by zstd.
    pub proto_compress_fwdbwd: Option<bool>,
    /// The number of datums in one chunk.
    pub fwdbwd_max_chunk_len: Option<u32>,
    /// The size of one chunk before compression, in bytes.
    pub fwdbwd_max_chunk_bytes_count: Option<u64>,
    /// The most samples that one client may request in parallel.
    pub sample_max_concurrent_requests: Option<u32>,
    /// Whether the client makes one long poll for each sampler, in place of one for each sample.
    pub sample_use_retrieve_futures: Option<bool>,
    /// SDK 0.24 and older: forward_backward uses protobuf.
    pub proto_write_fwdbwd: Option<bool>,
    /// SDK 0.24 and older: forward uses forward_backward.
    pub fwd_via_fwdbwd: Option<bool>,
    /// SDK 0.24 and older: load_weights creates a model.
    pub create_model_via_load_weights: Option<bool>,
}

/// Flags that a running client fetches again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicConfig {
    pub refresh_interval_sec: u32,
    /// Whether `cancel_future` exists.
    #[serde(default)]
    pub sample_cancel_enabled: bool,
}

/// `POST create_session`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_session")]
pub struct CreateSession {
    /// Free text of the user.
    #[serde(default)]
    pub tags: Vec<String>,
    pub user_metadata: Option<Map<String, Value>>,
    /// For example `0.38.0`.
    #[serde(default)]
    pub sdk_version: String,
    /// The project that pays.
    pub project_id: Option<String>,
    /// Text that a console shows.
    pub display_name: Option<String>,
}

/// Answer to [`CreateSession`]; the user sees the messages.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_session")]
pub struct CreatedSession {
    pub session_id: TinkerSessionId,
    pub info_message: Option<String>,
    pub warning_message: Option<String>,
    pub error_message: Option<String>,
}

/// `POST session_heartbeat`, every 10 s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "session_heartbeat")]
pub struct Heartbeat {
    pub session_id: TinkerSessionId,
}

/// Answer to [`Heartbeat`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "session_heartbeat")]
pub struct HeartbeatReply {}

/// `POST sessions/{id}/finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishSession {
    pub reason: ClientEnd,
    pub detail: Option<String>,
}

/// How a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientEnd {
    Success,
    Errored,
    Interrupted,
}

/// `GET healthz` (`ok`) and answer to telemetry (`accepted`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthStatus {
    pub status: String,
}

/// `GET get_server_capabilities`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCapabilities {
    /// The available base models.
    pub supported_models: Vec<SupportedModel>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SupportedModel {
    /// The model's name, as create_model accepts it.
    pub model_name: Option<String>,
    pub max_context_length: Option<u32>,
    /// Whether a run can use it.
    pub trainable: Option<bool>,
    /// Whether it can be sampled from.
    pub sampleable: Option<bool>,
}

// Models: creation, gradients, steps, weights.

/// `POST create_model`: a promise of [`CreatedModel`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_model")]
pub struct CreateModel {
    pub session_id: TinkerSessionId,
    /// The model's number in its session, from 0.
    pub model_seq_id: u32,
    pub base_model: String,
    pub user_metadata: Option<Map<String, Value>>,
    /// The adapter; the SDK always sends one.
    pub lora_config: Option<LoraConfig>,
    pub optimizer_config: Option<OptimizerConfig>,
}

#[derive(Debug, Clone, Copy, SmartDefault, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoraConfig {
    #[default(DEFAULT_RANK)]
    pub rank: u32,
    /// The seed of the initial weights; random if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[default(true)]
    pub train_unembed: bool,
    #[default(true)]
    pub train_mlp: bool,
    /// The projections q, k, v, o.
    #[default(true)]
    pub train_attn: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// For example `adamw`.
    #[serde(rename = "type")]
    pub kind: String,
}

// === impl OptimizerConfig ===

impl Default for OptimizerConfig {
    fn default() -> Self {
        let kind = "adamw".to_owned();
        Self { kind }
    }
}

/// The result of [`CreateModel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_model")]
pub struct CreatedModel {
    /// `{session}:train:{n}`.
    pub model_id: ModelId,
    /// A message about parts of the request that were not carried out. The SDK does not read it. Ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// `POST get_info`, answered immediately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "get_info")]
pub struct GetInfo {
    pub model_id: ModelId,
}

/// Answer to [`GetInfo`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "get_info")]
pub struct ModelInfo {
    pub model_id: ModelId,
    pub model_data: ModelData,
    pub is_lora: Option<bool>,
    pub lora_rank: Option<u32>,
    /// The same value as in `model_data`.
    pub model_name: Option<String>,
    pub optimizer_config: Option<OptimizerConfig>,
    /// The same message as [`CreatedModel::warning`]. Ours.
    pub warning: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelData {
    /// For example `llama`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The model's name, as create_model accepts it. The SDK needs it.
    pub model_name: Option<String>,
    /// The tokenizer, as `AutoTokenizer` opens it: a name at the hub or a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer_id: Option<String>,
}

/// `POST optim_step`: a promise of [`OptimStepped`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "optim_step")]
pub struct OptimStep {
    pub model_id: ModelId,
    /// The number of the call, from 1.
    pub seq_id: Option<u32>,
    pub adam_params: Option<AdamParams>,
    /// The parameters of another optimiser.
    pub optimizer_params: Option<OptimizerConfig>,
}

#[derive(Debug, Clone, Copy, SmartDefault, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdamParams {
    #[default(DEFAULT_LEARNING_RATE)]
    pub learning_rate: f64,
    /// Decay of the first moment.
    #[default(0.9)]
    pub beta1: f64,
    /// Decay of the second moment.
    #[default(0.95)]
    pub beta2: f64,
    /// Added to the square root of the second moment.
    #[default(1e-12)]
    pub eps: f64,
    pub weight_decay: f64,
    /// The largest global gradient norm; 0 switches it off.
    pub grad_clip_norm: f64,
}

/// The result of [`OptimStep`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OptimStepped {
    /// Metrics by free names, such as `grad_norm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<BTreeMap<String, f64>>,
}

/// `POST save_weights`: a promise of [`SavedWeights`] with its path.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "save_weights")]
pub struct SaveWeights {
    pub model_id: ModelId,
    /// The checkpoint's name; if absent, the server chooses one.
    pub path: Option<String>,
    /// The number of the model's call, from 1.
    pub seq_id: Option<u32>,
    /// When it may be deleted.
    pub ttl_seconds: Option<u64>,
    /// Whether a checkpoint of this name is replaced.
    #[serde(default)]
    pub overwrite: bool,
    pub user_metadata: Option<Map<String, Value>>,
}

/// The result of [`SaveWeights`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWeights {
    /// `tinker://…`.
    pub path: String,
    /// `save_weights` or `load_weights`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// For load_weights, the model that now has the weights.
    pub model_id: Option<ModelId>,
}

/// `POST load_weights`: a promise of [`SavedWeights`]. With a session it creates a model, with the checkpoint's rank
/// and targets; with a model it is the older form.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "load_weights")]
pub struct LoadWeights {
    /// Older form: the model.
    pub model_id: Option<ModelId>,
    /// Older form: the number of its call, from 1.
    pub seq_id: Option<u32>,
    /// The session of the new model.
    pub session_id: Option<TinkerSessionId>,
    /// The new model's number.
    pub model_seq_id: Option<u32>,
    /// The base model, if it is not the checkpoint's.
    pub base_model: Option<String>,
    pub user_metadata: Option<Map<String, Value>>,
    /// `tinker://…/weights/…`.
    pub path: String,
    /// Whether the optimiser's state is loaded too.
    pub optimizer: bool,
    /// The LoRA settings of a new model, if they are not the checkpoint's.
    pub optimizer_config: Option<OptimizerConfig>,
}

/// `POST save_weights_for_sampler`: with a path, or for one client only.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "save_weights_for_sampler")]
pub struct SaveForSampler {
    pub model_id: ModelId,
    /// The name of the saved weights.
    pub path: Option<String>,
    /// Or the session's next sampler.
    pub sampling_session_seq_id: Option<u32>,
    /// `snapshot`, or `inflight` for a sampler that follows the model.
    pub kind: Option<String>,
    /// The number of the model's call, from 1.
    pub seq_id: Option<u32>,
    /// When they may be deleted.
    pub ttl_seconds: Option<u64>,
    pub user_metadata: Option<Map<String, Value>>,
}

/// The result of [`SaveForSampler`].
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "save_weights_for_sampler")]
pub struct SavedForSampler {
    /// The path of a named save: `tinker://…/sampler_weights/…`.
    pub path: Option<String>,
    pub sampling_session_id: Option<SamplerId>,
}

/// `POST unload_model`, and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "unload_model")]
pub struct UnloadModel {
    pub model_id: ModelId,
}

// Promises and their results.

/// The immediate answer to a call that takes long.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The id for `retrieve_future`.
    pub request_id: RequestId,
    /// The model of the call; absent for samples.
    pub model_id: Option<ModelId>,
    /// The sample ids of an asample call. SkyRL leaves them out.
    pub sample_sequence_ids: Option<Vec<String>>,
}

/// `POST retrieve_future`: waits up to 30 s, then answers 408 with [`TryAgain`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetrieveFuture {
    pub request_id: RequestId,
    /// Whether the server may answer with only the size of a large result.
    #[serde(default)]
    pub allow_metadata_only: bool,
}

/// `POST cancel_future`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelFuture {
    pub request_id: RequestId,
}

/// The answer while the result is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "try_again")]
pub struct TryAgain {
    pub request_id: RequestId,
    /// The reason for waiting.
    pub queue_state: QueueState,
    /// The reason as a message to the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_state_reason: Option<String>,
}

/// The reason why a promise waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    Active,
    PausedCapacity,
    PausedRateLimit,
}

/// The result of a failed promise, with status 200.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPromise {
    pub error: String,
    pub category: FailureCategory,
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCategory {
    /// The request: the same one fails again.
    User,
    Server,
    #[serde(other)]
    Unknown,
}

// Sequences and the results of forward and forward_backward, as SDK 0.24 and older write them.

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

// Samplers.

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

// Lists of runs and checkpoints.

/// The position of a page in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The first entry's number.
    pub offset: u64,
    /// The requested number of entries.
    pub limit: u64,
    /// The number of all entries.
    pub total_count: u64,
}

/// `GET training_runs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingRunsReply {
    pub training_runs: Vec<TrainingRun>,
    pub cursor: Cursor,
}

/// `GET training_runs/{id}`: a model, open or closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingRun {
    pub training_run_id: String,
    pub base_model: String,
    #[serde(default)]
    pub model_owner: String,
    pub is_lora: bool,
    #[serde(default)]
    pub corrupted: bool,
    pub lora_rank: Option<u32>,
    /// In ISO 8601.
    pub last_request_time: String,
    /// The last checkpoint of kind `training`.
    pub last_checkpoint: Option<Checkpoint>,
    /// The last checkpoint of kind `sampler`.
    pub last_sampler_checkpoint: Option<Checkpoint>,
    pub user_metadata: Option<Map<String, Value>>,
}

/// `GET checkpoints` and `GET training_runs/{id}/checkpoints`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointList {
    /// The checkpoints of one page, or all.
    pub checkpoints: Vec<Checkpoint>,
    /// The page; null for all.
    pub cursor: Option<Cursor>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// For example `weights/step-1`.
    pub checkpoint_id: String,
    /// `training`, `sampler` or `external`.
    pub checkpoint_type: String,
    /// When it was written, in ISO 8601.
    pub time: String,
    pub tinker_path: String,
    pub size_bytes: Option<u64>,
    /// Whether others may read the checkpoint.
    #[serde(default)]
    pub public: bool,
    pub user_metadata: Option<Map<String, Value>>,
    /// When it expires, in ISO 8601; null means never.
    pub expires_at: Option<String>,
}

/// `POST weights_info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsInfoRequest {
    /// `tinker://…`.
    pub tinker_path: String,
}

/// Answer to [`WeightsInfoRequest`].
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsInfo {
    pub base_model: String,
    #[serde(default)]
    pub optimizer_config: OptimizerConfig,
    pub is_lora: bool,
    pub lora_rank: Option<u32>,
    /// Whether the unembedding has an adapter.
    pub train_unembed: Option<bool>,
    /// Whether gate, up, down have one.
    pub train_mlp: Option<bool>,
    /// Whether q, k, v, o have one.
    pub train_attn: Option<bool>,
}
