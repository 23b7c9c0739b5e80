//! Promises and their results.

use serde::{Deserialize, Serialize};

use crate::tinker::{ModelId, RequestId};

/// The immediate answer to a call that takes long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The id for `retrieve_future`.
    pub request_id: RequestId,
    /// The model of the call; absent for samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<ModelId>,
    /// The sample ids of an asample call. SkyRL leaves them out.
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

/// The answer while the result is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "try_again")]
pub struct TryAgain {
    pub request_id: RequestId,
    /// The reason for waiting.
    pub queue_state: QueueState,
    /// The reason as a message to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
