//! The proxy, as the runner talks to it: opens rollouts, asks for their turns, closes them.

use std::{fmt, time::Duration};

use metaclaw_chat::{AgentId, RolloutId, Secret, excerpt};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    address::HttpAddress,
    http::{fetch, patiently},
};

/// How long the proxy may be away, as while it restarts.
const PATIENCE: Duration = Duration::from_secs(120);
const LOADING: Duration = Duration::from_secs(600);
const READY_PAUSE: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RolloutRequest {
    pub agent: AgentId,
    pub task: String,
    pub group: String,
    pub group_size: u32,
    pub attempt: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    pub timeout_s: u64,
    pub run: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OpenedRollout {
    pub id: RolloutId,
    pub base_url: HttpAddress,
    pub anthropic_base_url: HttpAddress,
    pub api_key: Secret,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RolloutView {
    /// `open`, `scored`, `failed` or `unfinished`.
    pub state: String,
    /// The ids of its turns in their order.
    #[serde(default)]
    pub turns: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct WantedHeldOut {
    /// The adapter that has to answer, or none for the one that serves.
    pub adapter: Option<String>,
    /// The number of held-out tasks; 0 if nothing is wanted.
    #[serde(default)]
    pub held_out: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RolloutClosing {
    Closed,
    /// The rollout was closed before, as at its deadline, or the log has forgotten it.
    TooLate,
}

/// Why the proxy did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error(
        "the proxy at {url} cannot be reached: {source}; `metaclaw status` says whether it runs"
    )]
    Unreachable {
        url: HttpAddress,
        source: reqwest::Error,
    },
    #[error("the proxy at {url} answered {status}: {message}")]
    Refused {
        url: HttpAddress,
        status: StatusCode,
        message: String,
    },
    #[error(
        "the proxy at {url} serves no model after {} minutes: `metaclaw logs` says why",
        LOADING.as_secs() / 60
    )]
    NotReady { url: HttpAddress },
    #[error("the proxy at {url} answered with {what}")]
    Answer { url: HttpAddress, what: String },
}

/// Where the proxy is, and the key that it expects.
#[derive(Debug, Clone)]
pub struct ProxyAddress {
    /// The base URL for agents, as in `http://127.0.0.1:30000/v1`.
    pub base_url: HttpAddress,
    pub key: Option<Secret>,
}

#[derive(Debug)]
pub(crate) struct ProxyClient {
    http: reqwest::Client,
    address: ProxyAddress,
    patience: Duration,
}

// === impl ProxyClient ===

impl ProxyClient {
    pub(crate) fn new(http: reqwest::Client, address: ProxyAddress) -> Self {
        Self {
            http,
            address,
            patience: PATIENCE,
        }
    }

    pub(crate) async fn is_ready(&self) -> bool {
        let origin = self.address.base_url.origin().ascii_serialization();
        let asking = self.http.get(format!("{origin}/readyz")).timeout(DEADLINE);
        let reply = asking.send().await;
        reply.is_ok_and(|reply| reply.status() != StatusCode::SERVICE_UNAVAILABLE)
    }

    /// Waits until the model answers chats, for example while it is loaded. `tell` is called if that takes a while.
    ///
    /// # Errors
    /// [`ProxyError::NotReady`] after [`LOADING`].
    pub(crate) async fn wait_until_ready(&self, tell: impl Fn(&str)) -> Result<(), ProxyError> {
        let until = Instant::now() + LOADING;
        let mut is_told = false;
        while !self.is_ready().await {
            if Instant::now() > until {
                let url = self.address.base_url.clone();
                return Err(ProxyError::NotReady { url });
            }
            if !is_told {
                tell("waiting until the model is served");
                is_told = true;
            }
            sleep(READY_PAUSE).await;
        }
        Ok(())
    }

    pub(crate) async fn open(&self, wanted: &RolloutRequest) -> Result<OpenedRollout, ProxyError> {
        self.post("rollouts", &json!(wanted)).await
    }

    pub(crate) async fn rollout(&self, id: impl fmt::Display) -> Result<RolloutView, ProxyError> {
        self.get(&format!("rollouts/{id}")).await
    }

    /// Closes a rollout with `score` and `steps`, or with `failed`.
    pub(crate) async fn close(&self, feedback: &Value) -> Result<RolloutClosing, ProxyError> {
        match self.post::<Value>("feedback", feedback).await {
            Ok(_) => Ok(RolloutClosing::Closed),
            Err(ProxyError::Refused {
                status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
                ..
            }) => Ok(RolloutClosing::TooLate),
            Err(error) => Err(error),
        }
    }

    /// Asks which held-out tasks the gate wants. Who asks counts as a runner that is there.
    pub(crate) async fn wanted(&self, agent: &AgentId) -> Result<WantedHeldOut, ProxyError> {
        self.get(&format!("rollouts/wanted?agent={agent}")).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ProxyError> {
        self.send(Method::POST, path, Some(body)).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ProxyError> {
        self.send(Method::GET, path, None).await
    }

    /// Sends a request, again and again while the proxy is away or full, for at most [`PATIENCE`].
    ///
    /// If the answer to the opening of a rollout is lost, a second one is opened; the first ends as unfinished.
    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, ProxyError> {
        let base = &self.address.base_url;
        let send_once = async || {
            let mut request = self.http.request(method.clone(), base.below(path));
            if let Some(key) = &self.address.key {
                request = request.bearer_auth(key.expose());
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let sent = fetch(request.timeout(DEADLINE)).await;
            let (status, bytes) = sent.map_err(|source| ProxyError::Unreachable {
                url: base.clone(),
                source: source.without_url(),
            })?;
            if !status.is_success() {
                return Err(ProxyError::Refused {
                    url: base.clone(),
                    status,
                    message: error_message(&bytes),
                });
            }
            serde_json::from_slice(&bytes).map_err(|error| ProxyError::Answer {
                url: base.clone(),
                what: format!("{} ({error})", excerpt(&String::from_utf8_lossy(&bytes))),
            })
        };
        patiently(self.patience, async || {
            send_once().await.map_err(|error| {
                let may_help = match &error {
                    ProxyError::Unreachable { .. } => true,
                    ProxyError::Refused { status, .. } => {
                        *status == StatusCode::SERVICE_UNAVAILABLE
                    }
                    ProxyError::NotReady { .. } | ProxyError::Answer { .. } => false,
                };
                (error, may_help.then_some(Duration::ZERO))
            })
        })
        .await
    }
}

/// The message of an error in the form of OpenAI's API, else the beginning of the text.
pub(crate) fn error_message(bytes: &[u8]) -> String {
    let message = serde_json::from_slice(bytes).ok().and_then(|body: Value| {
        let error = body.get("error")?;
        let text = error.get("message").unwrap_or(error).as_str()?;
        Some(text.to_owned())
    });
    message.unwrap_or_else(|| excerpt(&String::from_utf8_lossy(bytes)).into_owned())
}
