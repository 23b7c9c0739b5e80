//! Sends one request to a chat model.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use metaclaw_aws::{BedrockEndpoint, RequestToSign, sign};
use metaclaw_chat::{Message, Secret, now_ms, retry_after};
use reqwest::{
    Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde_json::{Map, Value, json};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout_at},
};

pub(crate) use self::error::told;
pub use self::{answer::Answer, counts::AskCounts, error::AskError};
use self::{
    answer::read,
    counts::Counters,
    fields::{Accepted, QuestionFields},
};
use crate::config::{ConfigError, LlmConfig};

mod answer;
mod counts;
mod error;
mod fields;

/// Waits between attempts of one request, as far as the deadline allows: from 0.25 s to 10 s, and a random addition of
/// up to the same length, so that requests that failed together are not repeated together.
const WAITS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_secs(10))
    .with_max_times(5)
    .with_jitter();
/// The largest answer in bytes.
const MAX_ANSWER: usize = 4 << 20;
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AskParams {
    /// From 0 to 2. If none, the server's default.
    pub temperature: Option<f64>,
    /// Above 0, at most 1. If none, the server's default.
    pub top_p: Option<f64>,
    /// The largest number of tokens of the answer. If none, the server's default.
    pub max_tokens: Option<u32>,
}

/// A client for one chat model. Cheap to clone.
#[derive(Clone)]
pub struct ChatClient {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    endpoint: Url,
    /// The header with the key.
    key: Option<(HeaderName, HeaderValue)>,
    /// Further headers.
    extra: Vec<(HeaderName, HeaderValue)>,
    config: LlmConfig,
    accepted: Accepted,
    counters: Counters,
}

// === impl ChatClient ===

impl ChatClient {
    /// Makes a client for the model that `config` names.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the address or the key cannot be used.
    pub fn new(config: LlmConfig, http: reqwest::Client) -> Result<Self, ConfigError> {
        let key = config.key.as_ref().map(|key| show(key, config.azure));
        let key = key.transpose()?;
        let inner = Inner {
            http,
            endpoint: config.endpoint()?,
            key,
            extra: further_headers(&config),
            config,
            accepted: Accepted::default(),
            counters: Counters::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns the model's name.
    pub fn model(&self) -> &str {
        &self.inner.config.model
    }

    /// Returns the number of requests since the start, and their tokens.
    pub fn counts(&self) -> AskCounts {
        self.inner.counters.read()
    }

    /// Sends a request, and repeats it until the deadline if that may help.
    ///
    /// # Errors
    /// Returns the [`AskError`] of the last attempt.
    ///
    /// # Cancel safety
    /// If the future is dropped, the request is cancelled.
    pub async fn ask(&self, messages: &[Message], params: AskParams) -> Result<Answer, AskError> {
        let deadline = Instant::now() + self.inner.config.timeout.0;
        let mut waits = WAITS.build();
        loop {
            let fields = self.inner.accepted.now();
            let asked = timeout_at(deadline, self.ask_once(messages, &params, fields)).await;
            match &asked {
                Ok(Ok(answer)) => self.inner.counters.answered(answer.usage.as_ref()),
                Ok(Err(_)) | Err(_) => self.inner.counters.failed(),
            }
            let Ok(answer) = asked else {
                return Err(AskError::Deadline {
                    url: self.inner.endpoint.clone(),
                    timeout: self.inner.config.timeout.0,
                });
            };
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if let Some(refusal) = error.refusal()
                && self.inner.accepted.learns_from(refusal, fields)
            {
                continue;
            }
            let Some(wait) = waits.next().filter(|_| error.retryable()) else {
                return Err(error);
            };
            let until = Instant::now() + wait.max(error.retry_after().unwrap_or_default());
            // If the wait ended after the deadline, the next error would only hide this one.
            if until >= deadline {
                return Err(error);
            }
            tracing::debug!(%error, ?wait, "asking again");
            sleep_until(until).await;
        }
    }

    async fn ask_once(
        &self,
        messages: &[Message],
        params: &AskParams,
        fields: QuestionFields,
    ) -> Result<Answer, AskError> {
        let url = &self.inner.endpoint;
        let unreachable = |source| AskError::Unreachable {
            url: url.clone(),
            source,
        };
        let body = self.body(messages, params, fields).to_string();
        let signature = self.signature(&body).await?;
        let mut request = self.inner.http.post(url.clone());
        request = request.header(CONTENT_TYPE, "application/json");
        for (name, value) in signature {
            request = request.header(name, value);
        }
        request = request.body(body);
        for (name, value) in &self.inner.extra {
            request = request.header(name, value.clone());
        }
        if let Some((name, value)) = &self.inner.key {
            request = request.header(name, value.clone());
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER);
        let asked = header.and_then(|value| value.to_str().ok());
        let retry_after = asked.and_then(|value| retry_after(value, now_ms()));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(self.no_answer(format!("over {MAX_ANSWER} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            return Err(AskError::Status {
                url: url.clone(),
                status,
                message: told(&body),
                retry_after,
            });
        }
        read(&body).map_err(|why| self.no_answer(why))
    }

    /// Returns the headers that sign a request, or none if its server is not Bedrock or there is a key.
    async fn signature(&self, body: &str) -> Result<Vec<(HeaderName, HeaderValue)>, AskError> {
        let Inner { endpoint, key, .. } = &*self.inner;
        let bedrock = endpoint.host_str().and_then(BedrockEndpoint::of_host);
        let Some(bedrock) = bedrock.filter(|_| key.is_none()) else {
            return Ok(Vec::new());
        };
        let unsigned = |why: String| AskError::Unsigned {
            url: endpoint.clone(),
            why,
        };
        let source = self.inner.config.aws.clone();
        let found = spawn_blocking(move || source.load()).await;
        let found = found.map_err(|error| unsigned(error.to_string()))?;
        let credentials = found.map_err(|error| unsigned(error.to_string()))?;
        let request = RequestToSign {
            method: "POST",
            uri: endpoint.as_str(),
            body: body.as_bytes(),
        };
        let signed = sign(request, &bedrock, &credentials, SystemTime::now());
        signed.map_err(|error| unsigned(error.to_string()))
    }

    fn no_answer(&self, why: String) -> AskError {
        AskError::NotAnAnswer {
            url: self.inner.endpoint.clone(),
            why,
        }
    }

    fn body(&self, messages: &[Message], params: &AskParams, fields: QuestionFields) -> Value {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(self.inner.config.model));
        let messages = messages.iter().map(|message| json!(message.as_map()));
        body.insert("messages".to_owned(), messages.collect());
        if let Some(temperature) = params.temperature.filter(|_| fields.temperature) {
            body.insert("temperature".to_owned(), json!(temperature));
        }
        if let Some(top_p) = params.top_p {
            body.insert("top_p".to_owned(), json!(top_p));
        }
        if let Some(max_tokens) = params.max_tokens {
            let name = if fields.max_tokens {
                "max_tokens"
            } else {
                "max_completion_tokens"
            };
            body.insert(name.to_owned(), json!(max_tokens));
        }
        body.insert("stream".to_owned(), json!(false));
        body.extend(self.inner.config.extra.fields.clone());
        Value::Object(body)
    }
}

impl fmt::Debug for ChatClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatClient")
            .field("config", &self.inner.config)
            .finish_non_exhaustive()
    }
}

/// Returns the configured headers that can be headers.
fn further_headers(config: &LlmConfig) -> Vec<(HeaderName, HeaderValue)> {
    let headers = config.extra.headers.iter();
    let header = |(name, value): (&String, &String)| {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        Some((name, HeaderValue::try_from(value.as_str()).ok()?))
    };
    headers.filter_map(header).collect()
}

/// Returns the header that carries a key.
fn show(key: &Secret, azure: bool) -> Result<(HeaderName, HeaderValue), ConfigError> {
    let (name, value) = if azure {
        (HeaderName::from_static("api-key"), key.expose().to_owned())
    } else {
        (AUTHORIZATION, format!("Bearer {}", key.expose()))
    };
    let value = HeaderValue::try_from(value);
    let mut value = value.map_err(|_| ConfigError::Key { key: key.clone() })?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests;
