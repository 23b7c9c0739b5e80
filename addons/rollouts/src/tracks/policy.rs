//! Chat completions of the model that is trained, as a track's agent asks for them.

use std::time::Duration;

use metaclaw_chat::{excerpt, head};
use reqwest::{StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{reply::PolicyReply, settings::AgentSettings, task::TaskOptions};

/// How long requests are repeated: a proxy that is restarted answers again within this time.
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The bytes of a refusal that are shown: enough for what is allowed instead.
const MAX_WORDS: usize = 500;
/// The largest reply in bytes.
const MAX_REPLY: usize = 16 << 20;

/// A client of the model.
#[derive(Debug)]
pub(super) struct PolicyClient {
    http: reqwest::Client,
    url: String,
    settings: AgentSettings,
    options: TaskOptions,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum PolicyRequestError {
    #[error("the conversation is longer than the model's context: {words}")]
    ContextFull { words: String },
    #[error("{url} refuses the request with status {status}: {words}")]
    Refused {
        url: String,
        status: StatusCode,
        words: String,
    },
    #[error("{url} is not reached: {source}")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("{url} answers with something else than a chat completion: {words}")]
    NoCompletion { url: String, words: String },
}

// === impl PolicyClient ===

impl PolicyClient {
    pub(super) fn new(
        http: reqwest::Client,
        settings: &AgentSettings,
        options: &TaskOptions,
    ) -> Self {
        let base = settings.base_url.trim_end_matches('/');
        Self {
            http,
            url: format!("{base}/chat/completions"),
            settings: settings.clone(),
            options: options.clone(),
        }
    }

    /// Asks for the next message of a conversation. Requests that fail for a reason that may pass are repeated.
    ///
    /// # Errors
    /// The last attempt's.
    pub(super) async fn ask(
        &self,
        messages: &[Value],
        tools: &[Value],
    ) -> Result<PolicyReply, PolicyRequestError> {
        let body = self.body(messages, tools);
        let deadline = Instant::now() + PATIENCE;
        let mut wait = FIRST_WAIT;
        loop {
            let (error, asked_wait) = match self.ask_once(&body).await {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            let Some(asked_wait) = asked_wait else {
                return Err(error);
            };
            let pause = wait.max(asked_wait);
            // A server may ask for a wait that no clock reaches.
            if pause > deadline.saturating_duration_since(Instant::now()) {
                return Err(error);
            }
            sleep(pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn body(&self, messages: &[Value], tools: &[Value]) -> Value {
        let mut body = json!({
            "model": self.settings.model,
            "messages": messages,
            "max_tokens": self.options.max_tokens,
            "temperature": self.options.temperature,
        });
        if !tools.is_empty() && !self.options.tools_in_prompt {
            body["tools"] = json!(tools);
        }
        if self.options.stream {
            body["stream"] = json!(true);
        }
        body
    }

    /// An error that may pass comes with the wait that the server asks for.
    async fn ask_once(
        &self,
        body: &Value,
    ) -> Result<PolicyReply, (PolicyRequestError, Option<Duration>)> {
        let unreachable = |source| {
            let url = self.url.clone();
            (
                PolicyRequestError::Unreachable { url, source },
                Some(Duration::ZERO),
            )
        };
        let request = self.http.post(&self.url).json(body);
        let request = request.bearer_auth(self.settings.api_key.expose());
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER);
        let header = header.and_then(|it| it.to_str().ok());
        let wait = header.and_then(|it| metaclaw_chat::retry_after(it, metaclaw_chat::now_ms()));
        let bytes = read(response).await.map_err(unreachable)?;
        let text = String::from_utf8_lossy(&bytes);
        if status.is_success() {
            let reply = if self.options.stream {
                PolicyReply::from_stream(&text)
            } else {
                PolicyReply::from_body(&text)
            };
            return reply.map_err(|words| {
                let url = self.url.clone();
                let words = format!("{words}: {}", excerpt(&text));
                (PolicyRequestError::NoCompletion { url, words }, None)
            });
        }
        let may_pass = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let error = refusal(&self.url, status, &text);
        Err((error, may_pass.then(|| wait.unwrap_or_default())))
    }
}

// === functions ===

/// Reads a body up to its limit. What is beyond is no longer a completion.
async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_REPLY {
            break;
        }
    }
    Ok(bytes)
}

fn refusal(url: &str, status: StatusCode, text: &str) -> PolicyRequestError {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let said = value["error"]["message"].as_str();
    let words = head(said.unwrap_or(text), MAX_WORDS).to_owned();
    if value["error"]["code"] == "context_length_exceeded" {
        return PolicyRequestError::ContextFull { words };
    }
    PolicyRequestError::Refused {
        url: url.to_owned(),
        status,
        words,
    }
}
