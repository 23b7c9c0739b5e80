//! The settings of a client of Tinker's API.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::backend::Result;
use crate::{
    ApiKey, BackendFuture,
    wire::{Sampled, TokenizeReply, TokenizeRequest},
};

/// The format of training requests and results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Protobuf, as in SDK 0.38. The client changes to JSON if the server accepts nothing else.
    #[default]
    Current,
    /// JSON, as in SDKs before 0.25 (MinT, Weaver), unless the server's flags ask for protobuf.
    Json,
}

/// The settings of a [`TinkerBackend`](super::TinkerBackend).
#[derive(Debug, Clone)]
pub struct TinkerConfig {
    /// The HTTP client, which the caller creates, so that redirects, proxies and TLS are set in one place.
    pub client: reqwest::Client,
    /// The address before `/api/v1`.
    pub url: String,
    /// Sent as `X-API-Key`.
    pub key: ApiKey,
    /// The project of the sessions, if the account has several.
    pub project: Option<String>,
    /// The model to train, by its name at the server: `Qwen/Qwen3-8B`.
    pub base_model: String,
    /// The dialect until the server asks for another.
    pub dialect: Dialect,
    /// The time after which an operation counts as lost.
    pub timeout: Duration,
    /// How long the client retries while the server is overloaded.
    pub patience: Duration,
    /// The interval between two heartbeats of a session.
    pub heartbeat: Duration,
    /// The folder of manifests for servers that store none. Without it, manifests are lost with the process.
    pub folder: Option<PathBuf>,
    /// The number of checkpoints of each line of training that remain when old ones are deleted.
    pub keep: usize,
    /// Answers the calls that Tinker's API does not have.
    pub text: Arc<dyn LocalText>,
}

/// This is the SDK's heartbeat interval.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// The default patience. It is shorter than the learner's own pauses, so that the status shows the server's answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Answers in this process what Tinker has no call for, because Tinker knows token ids only.
///
/// # Cancel safety
/// None of these calls changes anything.
pub trait LocalText: fmt::Debug + Send + Sync {
    /// Whether the other calls can be answered.
    ///
    /// # Errors
    /// Returns why not yet, in words.
    fn ready(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the ids that end a reply; empty if they are not known.
    fn end_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Converts messages or text to ids, by the model's own template.
    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply>;

    /// Returns the text of ids, without special tokens.
    fn decode(&self, ids: Vec<u32>) -> BackendFuture<'_, String>;

    /// The sampled ids and log-probabilities of a reply; `None` if they are not kept, or no longer.
    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>>;
}
