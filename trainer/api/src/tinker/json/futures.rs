//! Promises and their results.

use serde::{Deserialize, Serialize};

use crate::tinker::{ModelId, RequestId};

/// The immediate answer to a long call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The request of `retrieve_future`.
    pub request_id: RequestId,
    /// The model that a call creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<ModelId>,
    /// For asample: one id for each sample. SkyRL omits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// There is no result yet: ask again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "try_again")]
pub struct TryAgain {
    pub request_id: RequestId,
    /// What it waits for.
    pub queue_state: QueueState,
    /// A message for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_state_reason: Option<String>,
}

/// What a promise waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    Active,
    PausedCapacity,
    PausedRateLimit,
}

/// The result of a failed promise, with status 200.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
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
