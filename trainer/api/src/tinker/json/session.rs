//! Clients: configuration, sessions, what there is.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tinker::TinkerSessionId;

/// `POST client/config` and `client/dynamic_config`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientConfigRequest {
    /// As `0.38.0`.
    #[serde(default)]
    pub sdk_version: String,
}

/// How the server wants to be spoken to. An absent flag has the SDK's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientConfig {
    /// The key is exchanged for a token of short life first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pjwt_auth_enabled: Option<bool>,
    /// Whether the chunks of one forward_backward are sent in parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_fwdbwd_chunks: Option<bool>,
    /// Protobuf bodies come compressed by zstd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto_compress_fwdbwd: Option<bool>,
    /// Datums of one chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fwdbwd_max_chunk_len: Option<u32>,
    /// Bytes of one chunk before compression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fwdbwd_max_chunk_bytes_count: Option<u64>,
    /// The most samples that one client may request in parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_max_concurrent_requests: Option<u32>,
    /// Whether the client makes one long poll for each sampler, in place of one for each sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_use_retrieve_futures: Option<bool>,
    /// SDK 0.24 and older: forward_backward by protobuf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto_write_fwdbwd: Option<bool>,
    /// SDK 0.24 and older: forward by forward_backward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fwd_via_fwdbwd: Option<bool>,
    /// SDK 0.24 and older: a model is made by load_weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_model_via_load_weights: Option<bool>,
}

/// Flags that a running client fetches again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicConfig {
    pub refresh_interval_sec: u32,
    /// Whether `cancel_future` is answered.
    #[serde(default)]
    pub sample_cancel_enabled: bool,
}

/// `POST create_session`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_session")]
pub struct CreateSession {
    /// The user's own words.
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_metadata: Option<Map<String, Value>>,
    /// As `0.38.0`.
    #[serde(default)]
    pub sdk_version: String,
    /// Whose bill it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// Text that a console shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// Answer to [`CreateSession`]; the messages are shown to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "create_session")]
pub struct CreatedSession {
    pub session_id: TinkerSessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default)]
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
    /// Which base models there are.
    pub supported_models: Vec<SupportedModel>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SupportedModel {
    /// The model's name, as create_model accepts it.
    pub model_name: Option<String>,
    pub max_context_length: Option<u32>,
    /// Whether a run can be made of it.
    pub trainable: Option<bool>,
    /// Whether it can be sampled from.
    pub sampleable: Option<bool>,
}
