//! Sends one request to a chat model, reads its answer or why there is none, and counts both.
//!
//! The client learns from refusals which fields a server accepts, and remembers it. Newer models of OpenAI accept only
//! `max_completion_tokens`, and no temperature except their default.

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use metaclaw_aws::{BedrockEndpoint, RequestToSign, sign};
use metaclaw_chat::{Message, Secret, StopReason, Usage, now_ms, retry_after};
use reqwest::{
    StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde_json::{Map, Value, json};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    config::{ConfigError, LlmConfig},
    http::bounded_body,
};

/// Waits between attempts of one request, as far as the deadline allows: from 0.25 s to 10 s, and a random addition of
/// up to the same length, so that requests that failed together are not repeated together.
const WAITS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_secs(10))
    .with_max_times(5)
    .with_jitter();
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
#[derive(derive_more::Debug, Clone)]
#[debug("ChatClient({:?})", inner.config)]
pub struct ChatClient {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    endpoint: Url,
    key: Option<(HeaderName, HeaderValue)>,
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
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let header = response.headers().get(RETRY_AFTER);
        let asked = header.and_then(|value| value.to_str().ok());
        let retry_after = asked.and_then(|value| retry_after(value, now_ms()));
        let body = bounded_body(response, MAX_ANSWER).await;
        let body = body.map_err(unreachable)?;
        let body = body.ok_or_else(|| self.no_answer(format!("over {MAX_ANSWER} bytes")))?;
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

fn further_headers(config: &LlmConfig) -> Vec<(HeaderName, HeaderValue)> {
    let headers = config.extra.headers.iter();
    let header = |(name, value): (&String, &String)| {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        Some((name, HeaderValue::try_from(value.as_str()).ok()?))
    };
    headers.filter_map(header).collect()
}

fn show(key: &Secret, azure: bool) -> Result<(HeaderName, HeaderValue), ConfigError> {
    let (name, value) = if azure {
        (HeaderName::from_static("api-key"), key.expose().to_owned())
    } else {
        (AUTHORIZATION, format!("Bearer {}", key.expose()))
    };
    let mut value =
        HeaderValue::try_from(value).map_err(|_| ConfigError::Key { key: key.clone() })?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[derive(Debug, Default)]
pub(super) struct Accepted {
    no_max_tokens: AtomicBool,
    no_temperature: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct QuestionFields {
    /// Whether the limit is called `max_tokens`.
    pub(super) max_tokens: bool,
    pub(super) temperature: bool,
}

// === impl Accepted ===

impl Accepted {
    pub(super) fn now(&self) -> QuestionFields {
        QuestionFields {
            max_tokens: !self.no_max_tokens.load(Ordering::Relaxed),
            temperature: !self.no_temperature.load(Ordering::Relaxed),
        }
    }

    /// Learns from a refusal of a request with the fields `asked`. Returns whether a request without them is worth
    /// trying. If several requests are in flight, each of them learns it separately.
    pub(super) fn learns_from(&self, refusal: &str, asked: QuestionFields) -> bool {
        let mut refused = [
            (
                asked.max_tokens,
                "max_completion_tokens",
                &self.no_max_tokens,
            ),
            (asked.temperature, "temperature", &self.no_temperature),
        ]
        .into_iter();
        let found = refused.find(|(was_asked, field, _)| *was_asked && refusal.contains(field));
        if let Some((_, field, is_known)) = found {
            is_known.store(true, Ordering::Relaxed);
            tracing::debug!(field, "a model was asked in a way that it refuses");
        }
        found.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text, which may be empty.
    pub text: String,
    /// The server's `finish_reason`, in its own words.
    pub finish_reason: Option<String>,
    /// Its tokens, if the server reports them.
    pub usage: Option<Usage>,
}

impl Answer {
    /// Returns whether the server says that the text is not whole.
    pub fn is_cut(&self) -> bool {
        let reason = self.finish_reason.as_deref().and_then(StopReason::of);
        reason.is_some_and(StopReason::is_cut)
    }
}

pub(super) fn read(body: &[u8]) -> Result<Answer, String> {
    let json: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let choice = &json["choices"][0];
    let message: Message = serde_json::from_value(choice["message"].clone())
        .map_err(|error| format!("choices[0].message: {error}"))?;
    Ok(Answer {
        text: message.text().into_owned(),
        finish_reason: choice["finish_reason"].as_str().map(str::to_owned),
        usage: Usage::read(&json["usage"]).filter(|usage| usage.prompt_tokens > 0),
    })
}

/// Requests to a model since the start. A repeated request counts again, because it is also paid again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, derive_more::Add, derive_more::Sum)]
pub struct AskCounts {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests without an answer, among these.
    pub failures: u64,
    /// Tokens of prompts, as far as the server reported them.
    pub prompt_tokens: u64,
    /// Tokens of answers, as far as the server reported them.
    pub completion_tokens: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

// === impl Counters ===

impl Counters {
    pub(super) fn failed(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answered(&self, usage: Option<&Usage>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(usage) = usage {
            let (prompt, completion) = (usage.prompt_tokens, usage.completion_tokens);
            self.prompt_tokens.fetch_add(prompt, Ordering::Relaxed);
            self.completion_tokens
                .fetch_add(completion, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> AskCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AskCounts {
            requests: get(&self.requests),
            failures: get(&self.failures),
            prompt_tokens: get(&self.prompt_tokens),
            completion_tokens: get(&self.completion_tokens),
        }
    }
}

/// Characters of a server's error that are quoted.
const MAX_TOLD: usize = 300;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no connection, or it broke.
    #[error("{url} cannot be reached: {source}")]
    Unreachable { url: Url, source: reqwest::Error },
    /// The server answered with an error.
    #[error("{url} answered {status}: {message}")]
    Status {
        url: Url,
        status: StatusCode,
        message: String,
        retry_after: Option<Duration>,
    },
    #[error("{url} did not answer within {} s", .timeout.as_secs_f32())]
    Deadline { url: Url, timeout: Duration },
    /// There is no signature, so nothing was sent.
    #[error("{url} was not asked: {why}")]
    Unsigned { url: Url, why: String },
    /// The server's answer is not a chat completion.
    #[error("{url} answered with no chat completion: {why}")]
    NotAnAnswer { url: Url, why: String },
}

// === impl AskError ===

impl AskError {
    /// Returns whether a later retry may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } => true,
            Self::Status { status, .. } => {
                let too_early = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
                status.is_server_error() || too_early.contains(status)
            }
            Self::NotAnAnswer { .. } | Self::Unsigned { .. } => false,
        }
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Status {
                status: StatusCode::BAD_REQUEST,
                message,
                ..
            } => Some(message),
            Self::Status { .. }
            | Self::Unreachable { .. }
            | Self::Deadline { .. }
            | Self::Unsigned { .. }
            | Self::NotAnAnswer { .. } => None,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Unreachable { .. }
            | Self::Deadline { .. }
            | Self::Unsigned { .. }
            | Self::NotAnAnswer { .. } => None,
        }
    }
}

pub(crate) fn told(body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let message = json.as_ref().and_then(|json| {
        let error = &json["error"];
        [&error["message"], error, &json["message"], &json["detail"]]
            .into_iter()
            .find_map(Value::as_str)
    });
    let text = message.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    text.chars().take(MAX_TOLD).collect()
}
