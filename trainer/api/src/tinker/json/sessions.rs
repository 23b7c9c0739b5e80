//! Clients: configuration, sessions, capabilities, and the promises of long calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use crate::tinker::{ModelId, RequestId, TinkerSessionId};

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
