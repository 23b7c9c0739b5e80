//! The client of the self-hosted REST dialect.
//!
//! Speaks to `metaclaw-trainer` and to the community fork's server alike. The address is asked for
//! at every call, because a supervised trainer comes back on another port.

mod call;

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use self::call::Call;
use crate::{
    AdapterName, BackendError, BackendFuture, CheckpointName, RunId, TrainingBackend,
    wire::{
        AdapterInfo, AdaptersReply, CheckpointInfo, CheckpointLoadReply, CheckpointLoadRequest,
        CheckpointSaveReply, CheckpointSaveRequest, CheckpointsReply, CreateReply, CreateRequest,
        ForwardBackwardReply, ForwardBackwardRequest, ForwardReply, ForwardRequest, Health,
        OptimStepReply, OptimStepRequest, SampleReply, SampleRequest, Sampled, SaveWeightsReply,
        SaveWeightsRequest, TokenizeReply, TokenizeRequest, UnloadReply,
    },
};

/// Deadline of calls that compute nothing.
const QUICK: Duration = Duration::from_secs(30);

/// A key, shown only as `sk-…abcd`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Arc<str>);

/// Where a training server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// As in `http://127.0.0.1:8000`; a trailing `/` or `/v1` is dropped.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub key: Option<ApiKey>,
}

/// What a [`RemoteBackend`] is made of.
pub struct RemoteConfig {
    /// The client to send with: the caller's, so that redirects, proxies and TLS are set in one
    /// place.
    pub client: reqwest::Client,
    /// Where the server is now; `None` while none runs.
    pub endpoint: Arc<dyn Fn() -> Option<Endpoint> + Send + Sync>,
    /// Deadline of calls that train or sample: `rl.remote_timeout_s`, 600 s by default.
    pub timeout: Duration,
}

/// [`TrainingBackend`] over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct RemoteBackend {
    config: Arc<RemoteConfig>,
}

// === impl ApiKey ===

impl ApiKey {
    /// A key from its text.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// The key itself: for the header alone, never for a log.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = self
            .0
            .char_indices()
            .rev()
            .nth(3)
            .map(|(at, _)| &self.0[at..]);
        match tail {
            Some(tail) if self.0.len() >= 12 => write!(f, "sk-…{tail}"),
            Some(_) | None => f.write_str("sk-…"),
        }
    }
}

// === impl RemoteConfig ===

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("endpoint", &(self.endpoint)())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

// === impl RemoteBackend ===

impl RemoteBackend {
    /// A client; nothing is sent yet.
    pub fn new(config: RemoteConfig) -> Self {
        let config = Arc::new(config);
        Self { config }
    }

    fn quick(&self, name: &'static str) -> Result<Call<'_>, BackendError> {
        Call::new(&self.config, name, QUICK.min(self.config.timeout))
    }

    fn long(&self, name: &'static str) -> Result<Call<'_>, BackendError> {
        Call::new(&self.config, name, self.config.timeout)
    }
}

impl fmt::Debug for RemoteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteBackend").field(&self.config).finish()
    }
}

impl TrainingBackend for RemoteBackend {
    fn health(&self) -> BackendFuture<'_, Health> {
        Box::pin(async { self.quick("health")?.get("v1/health").await })
    }

    fn create_run(&self, request: CreateRequest) -> BackendFuture<'_, CreateReply> {
        Box::pin(async move {
            let call = self.long("lora/create")?;
            call.post("v1/lora/create", &request).await
        })
    }

    fn forward(&self, request: ForwardRequest) -> BackendFuture<'_, ForwardReply> {
        Box::pin(async move {
            let call = self.long("forward")?;
            call.post("v1/train/forward", &request).await
        })
    }

    fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> BackendFuture<'_, ForwardBackwardReply> {
        Box::pin(async move {
            let call = self.long("forward_backward")?;
            call.post("v1/train/forward_backward", &request).await
        })
    }

    fn optim_step(&self, request: OptimStepRequest) -> BackendFuture<'_, OptimStepReply> {
        Box::pin(async move {
            let call = self.long("optim_step")?;
            call.post("v1/train/optim_step", &request).await
        })
    }

    fn save_adapter(&self, run: RunId, name: AdapterName) -> BackendFuture<'_, SaveWeightsReply> {
        Box::pin(async move {
            let request = SaveWeightsRequest {
                session_id: run,
                name: name.as_str().to_owned(),
            };
            let call = self.long("weights/save")?;
            call.post("v1/weights/save", &request).await
        })
    }

    fn save_checkpoint(
        &self,
        run: RunId,
        name: CheckpointName,
        manifest: Value,
    ) -> BackendFuture<'_, CheckpointSaveReply> {
        Box::pin(async move {
            let request = CheckpointSaveRequest {
                session_id: run,
                name,
                manifest,
            };
            let call = self.long("checkpoint/save")?;
            call.post("v1/checkpoint/save", &request).await
        })
    }

    fn load_checkpoint(&self, run: RunId, path: String) -> BackendFuture<'_, u64> {
        Box::pin(async move {
            let request = CheckpointLoadRequest {
                session_id: run,
                path,
            };
            let call = self.long("checkpoint/load")?;
            let reply: CheckpointLoadReply = call.post("v1/checkpoint/load", &request).await?;
            Ok(reply.step)
        })
    }

    fn checkpoints(&self) -> BackendFuture<'_, Vec<CheckpointInfo>> {
        Box::pin(async {
            let call = self.quick("checkpoints")?;
            let reply: CheckpointsReply = call.get("v1/checkpoints").await?;
            Ok(reply.checkpoints)
        })
    }

    fn adapters(&self) -> BackendFuture<'_, Vec<AdapterInfo>> {
        Box::pin(async {
            let call = self.quick("adapters")?;
            let reply: AdaptersReply = call.get("v1/adapters").await?;
            Ok(reply.adapters)
        })
    }

    fn unload_adapter(&self, name: AdapterName) -> BackendFuture<'_, bool> {
        Box::pin(async move {
            let call = self.quick("unload")?;
            let reply: UnloadReply = call.delete(&format!("v1/adapters/{name}")).await?;
            Ok(reply.unloaded)
        })
    }

    fn sample(&self, request: SampleRequest) -> BackendFuture<'_, SampleReply> {
        Box::pin(async move {
            let call = self.long("sample")?;
            call.post("v1/sample", &request).await
        })
    }

    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        Box::pin(async move {
            let call = self.quick("tokenize")?;
            call.post("tokenize", &request).await
        })
    }

    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>> {
        Box::pin(async move {
            let call = self.quick("sampled")?;
            let found = call
                .get(&format!("v1/sampled/{}", path_segment(&reply_id)))
                .await;
            match found {
                Ok(sampled) => Ok(Some(sampled)),
                Err(error) if error.status() == Some(404) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

/// `text` as one segment of a path: what is not unreserved is percent-encoded.
fn path_segment(text: &str) -> String {
    use fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests;
