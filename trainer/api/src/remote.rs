//! The client of the REST API of self-hosted training servers.
//!
//! It works with `metaclaw-trainer` and with the community fork's server. The address is looked up at every call,
//! because a supervised trainer comes back on another port.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{Method, Response, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::backend::Result;
use crate::{
    AdapterName, BackendError, BackendFuture, CheckpointName, ErrorBody, RunId, TrainingBackend,
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
const TIMEOUT: Duration = Duration::from_secs(600);
const SHOWN: usize = 600;

/// A key, shown only as `sk-…abcd`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Arc<str>);

/// The address of a training server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL, as in `http://127.0.0.1:8000`. A trailing `/` or `/v1` is dropped.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub key: Option<ApiKey>,
}

/// The settings of a [`RemoteBackend`].
#[derive(derive_more::Debug)]
#[debug("RemoteConfig({:?}, {base_model:?})", endpoint())]
pub struct RemoteConfig {
    /// The HTTP client, which the caller creates, so that redirects, proxies and TLS are set in one place.
    pub client: reqwest::Client,
    /// The server's address now; `None` while no server runs.
    pub endpoint: Arc<dyn Fn() -> Option<Endpoint> + Send + Sync>,
    /// The timeout of calls that train or sample: `rl.remote_timeout_s`, 600 s by default.
    pub timeout: Duration,
    /// The default base model of runs, as the server finds it: `rl.model`. A server without a model loads it. A server
    /// with another model refuses. `None` takes whatever is loaded.
    pub base_model: Option<String>,
}

/// A [`TrainingBackend`] over HTTP. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct RemoteBackend {
    config: Arc<RemoteConfig>,
}

struct RemoteCall {
    name: &'static str,
    method: Method,
    path: String,
    body: Option<Result<Vec<u8>, serde_json::Error>>,
    deadline: Duration,
}

// === impl ApiKey ===

impl ApiKey {
    /// Creates a key from its text.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// Returns the key itself, which only the header may contain, never a log.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth_back(3) {
            Some((at, _)) if self.0.len() >= 12 => write!(f, "sk-…{}", &self.0[at..]),
            Some(_) | None => f.write_str("sk-…"),
        }
    }
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
        let (url, key) = (url.into(), None);
        let endpoint = Endpoint { url, key };
        Self::new(RemoteConfig {
            client,
            endpoint: Arc::new(move || Some(endpoint.clone())),
            timeout: TIMEOUT,
            base_model: None,
        })
    }

    fn get<T: DeserializeOwned>(&self, name: &'static str, path: String) -> BackendFuture<'_, T> {
        self.send(RemoteCall {
            name,
            method: Method::GET,
            path,
            body: None,
            deadline: QUICK.min(self.config.timeout),
        })
    }

    fn post<T: DeserializeOwned>(
        &self,
        path: &'static str,
        body: &impl Serialize,
    ) -> BackendFuture<'_, T> {
        self.post_within(self.config.timeout, path, body)
    }

    fn post_quickly<T: DeserializeOwned>(
        &self,
        path: &'static str,
        body: &impl Serialize,
    ) -> BackendFuture<'_, T> {
        self.post_within(QUICK.min(self.config.timeout), path, body)
    }

    fn post_within<T: DeserializeOwned>(
        &self,
        deadline: Duration,
        path: &'static str,
        body: &impl Serialize,
    ) -> BackendFuture<'_, T> {
        let name = path.trim_start_matches("v1/");
        self.send(RemoteCall {
            name: name.trim_start_matches("train/"),
            method: Method::POST,
            path: path.to_owned(),
            body: Some(serde_json::to_vec(body)),
            deadline,
        })
    }

    fn send<T: DeserializeOwned>(&self, call: RemoteCall) -> BackendFuture<'_, T> {
        Box::pin(async move { call.send(&self.config).await })
    }
}

impl TrainingBackend for RemoteBackend {
    fn health(&self) -> BackendFuture<'_, Health> {
        self.get("health", "v1/health".to_owned())
    }

    fn create_run(&self, mut request: CreateRequest) -> BackendFuture<'_, CreateReply> {
        if let (true, Some(model)) = (request.base_model.is_empty(), &self.config.base_model) {
            request.base_model.clone_from(model);
        }
        self.post("v1/lora/create", &request)
    }

    fn forward(&self, request: ForwardRequest) -> BackendFuture<'_, ForwardReply> {
        self.post("v1/train/forward", &request)
    }

    fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> BackendFuture<'_, ForwardBackwardReply> {
        self.post("v1/train/forward_backward", &request)
    }

    fn optim_step(&self, request: OptimStepRequest) -> BackendFuture<'_, OptimStepReply> {
        self.post("v1/train/optim_step", &request)
    }

    fn save_adapter(&self, run: RunId, name: AdapterName) -> BackendFuture<'_, SaveWeightsReply> {
        let request = SaveWeightsRequest {
            session_id: run,
            name: name.to_string(),
        };
        self.post("v1/weights/save", &request)
    }

    fn save_checkpoint(
        &self,
        run: RunId,
        name: CheckpointName,
        manifest: Value,
    ) -> BackendFuture<'_, CheckpointSaveReply> {
        let request = CheckpointSaveRequest {
            session_id: run,
            name,
            manifest,
        };
        self.post("v1/checkpoint/save", &request)
    }

    fn load_checkpoint(&self, run: RunId, path: String) -> BackendFuture<'_, u64> {
        let request = CheckpointLoadRequest {
            session_id: run,
            path,
        };
        let loaded = self.post::<CheckpointLoadReply>("v1/checkpoint/load", &request);
        Box::pin(async { Ok(loaded.await?.step) })
    }

    fn checkpoints(&self) -> BackendFuture<'_, Vec<CheckpointInfo>> {
        let listed = self.get::<CheckpointsReply>("checkpoints", "v1/checkpoints".to_owned());
        Box::pin(async { Ok(listed.await?.checkpoints) })
    }

    fn adapters(&self) -> BackendFuture<'_, Vec<AdapterInfo>> {
        let listed = self.get::<AdaptersReply>("adapters", "v1/adapters".to_owned());
        Box::pin(async { Ok(listed.await?.adapters) })
    }

    fn load_adapter(&self, name: AdapterName) -> BackendFuture<'_, LoadAdapterReply> {
        let request = LoadAdapterRequest {
            lora_name: name,
            lora_path: None,
        };
        self.post("v1/load_lora_adapter", &request)
    }

    fn unload_adapter(&self, name: AdapterName) -> BackendFuture<'_, bool> {
        let request = UnloadAdapterRequest { lora_name: name };
        let unloaded = self.post_quickly::<UnloadReply>("v1/unload_lora_adapter", &request);
        Box::pin(async { Ok(unloaded.await?.unloaded) })
    }

    fn prune(&self, keep: Vec<CheckpointName>) -> BackendFuture<'_, Vec<CheckpointName>> {
        let pruned = self.post::<PruneReply>("v1/checkpoints/prune", &PruneRequest { keep });
        Box::pin(async { Ok(pruned.await?.deleted) })
    }

    fn close_run(&self, run: RunId) -> BackendFuture<'_, ()> {
        let request = CloseRunRequest { session_id: run };
        let closed = self.post_quickly::<CloseRunReply>("v1/lora/close", &request);
        Box::pin(async { closed.await.map(|_| ()) })
    }

    fn sample(&self, request: SampleRequest) -> BackendFuture<'_, SampleReply> {
        self.post("v1/sample", &request)
    }

    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        self.post_quickly("tokenize", &request)
    }

    fn deadline(&self) -> Duration {
        self.config.timeout
    }

    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>> {
        let path = format!("v1/sampled/{}", path_segment(&reply_id));
        let found = self.get("sampled", path);
        Box::pin(async {
            match found.await {
                Err(error) if error.status() == Some(404) => Ok(None),
                found => found.map(Some),
            }
        })
    }
}

// === impl RemoteCall ===

impl RemoteCall {
    async fn send<T: DeserializeOwned>(self, config: &RemoteConfig) -> Result<T> {
        let (call, deadline) = (self.name, self.deadline);
        let endpoint = (config.endpoint)().ok_or(BackendError::NoEndpoint { call })?;
        let base = endpoint.url.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let url = format!("{base}/{}", self.path);
        let mut request = config.client.request(self.method, url).timeout(deadline);
        if let Some(key) = &endpoint.key {
            request = request.bearer_auth(key.expose());
        }
        if let Some(body) = self.body {
            let bytes = body.map_err(|error| BackendError::Request {
                call,
                why: error.to_string(),
            })?;
            request = request
                .header(header::CONTENT_TYPE, "application/json")
                .body(bytes);
        }
        let failed = |error| BackendError::unanswered(call, &endpoint.url, deadline, error);
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let body = Response::bytes(response).await.map_err(failed)?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| BackendError::Unreadable {
                call,
                url: endpoint.url.clone(),
                why: error.to_string(),
            });
        }
        // A fork's server answers with text or with FastAPI's shape.
        let (message, code, param) = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => (body.error.message, body.error.code, body.error.param),
            Err(_) => (String::from_utf8_lossy(&body).into_owned(), None, None),
        };
        Err(BackendError::Status {
            call,
            url: endpoint.url.clone(),
            status: status.as_u16(),
            code,
            param,
            message: message.chars().take(SHOWN).collect(),
        })
    }
}

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
