//! The client of the REST API of self-hosted training servers.
//!
//! It works with `metaclaw-trainer` and with the community fork's server. The address is looked up at every call,
//! because a supervised trainer comes back on another port.

mod call;
mod config;

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use self::call::RemoteCall;
pub use self::config::{ApiKey, Endpoint, RemoteConfig};
use crate::{
    AdapterName, BackendError, BackendFuture, CheckpointName, RunId, TrainingBackend,
    wire::{
        AdapterInfo, AdaptersReply, CheckpointInfo, CheckpointLoadReply, CheckpointLoadRequest,
        CheckpointSaveReply, CheckpointSaveRequest, CheckpointsReply, CloseRunReply,
        CloseRunRequest, CreateReply, CreateRequest, ForwardBackwardReply, ForwardBackwardRequest,
        ForwardReply, ForwardRequest, Health, LoadAdapterReply, LoadAdapterRequest, OptimStepReply,
        OptimStepRequest, PruneReply, PruneRequest, SampleReply, SampleRequest, Sampled,
        SaveWeightsReply, SaveWeightsRequest, TokenizeReply, TokenizeRequest, UnloadAdapterRequest,
        UnloadReply,
    },
};

/// The timeout of calls that compute nothing.
const QUICK: Duration = Duration::from_secs(30);

/// The default timeout of calls that train or sample.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A [`TrainingBackend`] over HTTP. It is cheap to clone.
#[derive(Clone)]
pub struct RemoteBackend {
    config: Arc<RemoteConfig>,
}

// === impl RemoteBackend ===

impl RemoteBackend {
    /// Creates a client without sending anything.
    pub fn new(config: RemoteConfig) -> Self {
        let config = Arc::new(config);
        Self { config }
    }

    /// Creates a client of the server at a fixed address that needs no key.
    pub fn at(client: reqwest::Client, url: impl Into<String>) -> Self {
        let endpoint = Endpoint {
            url: url.into(),
            key: None,
        };
        Self::new(RemoteConfig {
            client,
            endpoint: Arc::new(move || Some(endpoint.clone())),
            timeout: TIMEOUT,
            base_model: None,
        })
    }

    fn quick(&self, name: &'static str) -> Result<RemoteCall<'_>, BackendError> {
        RemoteCall::new(&self.config, name, QUICK.min(self.config.timeout))
    }

    fn long(&self, name: &'static str) -> Result<RemoteCall<'_>, BackendError> {
        RemoteCall::new(&self.config, name, self.config.timeout)
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

    fn create_run(&self, mut request: CreateRequest) -> BackendFuture<'_, CreateReply> {
        Box::pin(async move {
            if let (true, Some(model)) = (request.base_model.is_empty(), &self.config.base_model) {
                request.base_model.clone_from(model);
            }
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

    fn load_adapter(&self, name: AdapterName) -> BackendFuture<'_, LoadAdapterReply> {
        Box::pin(async move {
            let request = LoadAdapterRequest {
                lora_name: name,
                lora_path: None,
            };
            let call = self.long("load_lora_adapter")?;
            call.post("v1/load_lora_adapter", &request).await
        })
    }

    fn unload_adapter(&self, name: AdapterName) -> BackendFuture<'_, bool> {
        Box::pin(async move {
            let request = UnloadAdapterRequest { lora_name: name };
            let call = self.quick("unload_lora_adapter")?;
            let reply: UnloadReply = call.post("v1/unload_lora_adapter", &request).await?;
            Ok(reply.unloaded)
        })
    }

    fn prune(&self, keep: Vec<CheckpointName>) -> BackendFuture<'_, Vec<CheckpointName>> {
        Box::pin(async move {
            let call = self.long("checkpoints/prune")?;
            let reply: PruneReply = call
                .post("v1/checkpoints/prune", &PruneRequest { keep })
                .await?;
            Ok(reply.deleted)
        })
    }

    fn close_run(&self, run: RunId) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let call = self.quick("lora/close")?;
            let request = CloseRunRequest { session_id: run };
            let _: CloseRunReply = call.post("v1/lora/close", &request).await?;
            Ok(())
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

    fn deadline(&self) -> Duration {
        self.config.timeout
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

/// Percent-encodes `text` as one segment of a path.
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
