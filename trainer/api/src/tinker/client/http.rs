//! One HTTP exchange: credentials, headers, deadline, and what is known after a failure.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use reqwest::{Method, Response, header};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use super::{Flag, config::TinkerConfig, words::Whose};
use crate::{ApiKey, BackendError, backend::Result};

/// The SDK version that this client corresponds to. Servers choose their dialect by it.
pub(super) const SDK_VERSION: &str = "0.38.0";
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

const BOTH: &str = "application/x-protobuf, application/json";
const JSON: &str = "application/json";
pub(super) const PROTOBUF: &str = "application/x-protobuf";

#[derive(Debug, Clone)]
pub(super) struct HttpRequest {
    pub(super) call: &'static str,
    pub(super) method: Method,
    /// The path below `/api/v1/`, with its query.
    pub(super) path: String,
    /// The body; `None` for GET and DELETE.
    pub(super) body: Option<RequestBody>,
    /// The idempotency key, the same each time the request is sent.
    pub(super) idempotency: Option<String>,
    pub(super) deadline: Duration,
}

#[derive(Debug, Clone)]
pub(super) enum RequestBody {
    Json(Bytes),
    Protobuf(Bytes),
    /// Protobuf, compressed by zstd.
    Compressed(Bytes),
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_protobuf: bool,
    pub(super) body: Bytes,
    pub(super) retry_after: Option<Duration>,
    /// Whether the credential was refused because it has expired.
    pub(super) is_stale_token: bool,
}

#[derive(Debug)]
pub(super) struct Http {
    client: reqwest::Client,
    /// It has no `/` at its end.
    pub(super) url: String,
    pub(super) auth: Auth,
}

// === impl HttpRequest ===

impl HttpRequest {
    /// A POST of JSON.
    ///
    /// # Errors
    /// Returns [`BackendError::Request`] for values that JSON cannot express.
    pub(super) fn json(call: &'static str, path: &str, body: &impl Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(body).map_err(|error| BackendError::Request {
            call,
            why: error.to_string(),
        })?;
        Ok(Self::post(call, path, RequestBody::Json(bytes.into())))
    }

    pub(super) fn post(call: &'static str, path: &str, body: RequestBody) -> Self {
        let key = format!("metaclaw-retry-{}{}", random_digits(), random_digits());
        Self {
            body: Some(body),
            idempotency: Some(key),
            ..Self::bare(call, Method::POST, path)
        }
    }

    pub(super) fn bare(call: &'static str, method: Method, path: &str) -> Self {
        Self {
            call,
            method,
            path: path.to_owned(),
            body: None,
            idempotency: None,
            deadline: QUICK,
        }
    }

    pub(super) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

const QUICK: Duration = Duration::from_secs(30);

// === impl Http ===

impl Http {
    pub(super) fn new(config: &TinkerConfig) -> Self {
        let url = config.url.trim_end_matches('/');
        let url = url.strip_suffix("/api/v1").unwrap_or(url).to_owned();
        Self {
            client: config.client.clone(),
            url,
            auth: Auth {
                key: config.key.clone(),
                by_token: Flag::new(false),
                token: Mutex::new(None),
            },
        }
    }

    pub(super) fn whose(&self, call: &'static str) -> Whose<'_> {
        let url = &self.url;
        Whose { call, url }
    }

    /// Posts a body to the call of this name, and reads a successful answer.
    ///
    /// # Errors
    /// Those of [`Self::send`], the server's refusal, or what is wrong with the answer.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        call: &'static str,
        body: &impl Serialize,
    ) -> Result<T> {
        let answer = self.send(&HttpRequest::json(call, call, body)?).await?;
        answer.json(self.whose(call))
    }

    /// Sends the request. It is sent again with a new token if the server says that the token has expired, and a GET is
    /// sent again if the connection broke.
    ///
    /// # Errors
    /// Where no answer came. Whatever status comes is an answer.
    pub(super) async fn send(&self, request: &HttpRequest) -> Result<Answer> {
        let token = self.token().await?;
        let answer = match self.exchange(request, &token).await {
            // A server may close an idle connection just when it is used again. Reading twice changes nothing.
            Err(BackendError::Broken { .. }) if request.method == Method::GET => {
                self.exchange(request, &token).await?
            }
            answered => answered?,
        };
        if answer.is_stale_token && self.auth.by_token.get() {
            self.auth.forget(&token).await;
            let token = self.token().await?;
            return self.exchange(request, &token).await;
        }
        Ok(answer)
    }

    async fn token(&self) -> Result<String> {
        let call = "auth/token";
        let by_key = async |key: &str| {
            let request = HttpRequest::json(call, call, &serde_json::Map::new())?;
            self.exchange(&request, key).await?.json(self.whose(call))
        };
        self.auth.token(by_key).await
    }

    async fn exchange(&self, request: &HttpRequest, key: &str) -> Result<Answer> {
        let sent = self.builder(request, key).send().await;
        let response = sent.map_err(|error| self.failed(request, error))?;
        self.read(request, response).await
    }

    fn builder(&self, request: &HttpRequest, key: &str) -> reqwest::RequestBuilder {
        let url = format!("{}/api/v1/{}", self.url, request.path);
        let agent = concat!("metaclaw/", env!("CARGO_PKG_VERSION"));
        let mut builder = self
            .client
            .request(request.method.clone(), url)
            .timeout(request.deadline)
            .header(header::ACCEPT, BOTH)
            .header("x-api-key", key)
            .header("x-sdk-version", SDK_VERSION)
            .header(header::USER_AGENT, agent);
        if let Some(idempotency) = &request.idempotency {
            builder = builder.header("x-idempotency-key", idempotency);
        }
        let (media, bytes) = match &request.body {
            None => return builder,
            Some(RequestBody::Json(bytes)) => (JSON, bytes),
            Some(RequestBody::Protobuf(bytes)) => (PROTOBUF, bytes),
            Some(RequestBody::Compressed(bytes)) => {
                builder = builder.header(header::CONTENT_ENCODING, "zstd");
                (PROTOBUF, bytes)
            }
        };
        builder
            .header(header::CONTENT_TYPE, media)
            .body(bytes.clone())
    }

    async fn read(&self, request: &HttpRequest, response: Response) -> Result<Answer> {
        let status = response.status().as_u16();
        let text = |name: &str| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_ascii_lowercase)
        };
        let is_protobuf = text("content-type").is_some_and(|media| media.starts_with(PROTOBUF));
        let seconds = |name: &str, unit: f64| Some(text(name)?.parse::<f64>().ok()? * unit);
        let retry_after = seconds("retry-after-ms", 0.001)
            .or_else(|| seconds("retry-after", 1.0))
            .filter(|seconds| *seconds > 0.0 && seconds.is_finite())
            .map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST_PAUSE.as_secs_f64())));
        let is_stale = text("www-authenticate").is_some_and(|text| text.contains("invalid_token"));
        let body = response.bytes().await;
        Ok(Answer {
            status,
            is_protobuf,
            body: body.map_err(|error| self.failed(request, error))?,
            retry_after,
            is_stale_token: status == 401 && is_stale,
        })
    }

    fn failed(&self, request: &HttpRequest, source: reqwest::Error) -> BackendError {
        BackendError::unanswered(request.call, &self.url, request.deadline, source)
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Reads the body of a successful answer.
    ///
    /// # Errors
    /// Returns the server's refusal, or what is wrong with the body.
    pub(super) fn json<T: DeserializeOwned>(&self, whose: Whose<'_>) -> Result<T> {
        if !self.is_success() {
            return Err(whose.refusal(self.status, &self.body));
        }
        let read = serde_json::from_slice(&self.body);
        read.map_err(|error| whose.unreadable(error.to_string()))
    }
}

const USUAL_LIFE: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Auth {
    key: ApiKey,
    pub(super) by_token: Flag,
    token: Mutex<Option<AccessToken>>,
}

#[derive(Debug)]
struct AccessToken {
    text: ApiKey,
    /// Half of its lifetime is over at this time.
    renew_at: Instant,
}

#[derive(Deserialize)]
struct Exchanged {
    jwt: String,
}

// === impl Auth ===

impl Auth {
    /// The credential to send now: the key, or a token that is valid for a while. `exchange` gets a token for the key.
    ///
    /// # Errors
    /// Returns the errors of the exchange.
    async fn token(&self, exchange: impl AsyncFnOnce(&str) -> Result<Exchanged>) -> Result<String> {
        if !self.by_token.get() {
            return Ok(self.key.expose().to_owned());
        }
        let mut kept = self.token.lock().await;
        if let Some(token) = kept
            .as_ref()
            .filter(|token| Instant::now() < token.renew_at)
        {
            return Ok(token.text.expose().to_owned());
        }
        let Exchanged { jwt } = exchange(self.key.expose()).await?;
        let half = life(&jwt).unwrap_or(USUAL_LIFE) / 2;
        *kept = Some(AccessToken {
            text: ApiKey::new(jwt.clone()),
            renew_at: Instant::now() + half,
        });
        Ok(jwt)
    }

    async fn forget(&self, refused: &str) {
        let mut kept = self.token.lock().await;
        if kept
            .as_ref()
            .is_some_and(|token| token.text.expose() == refused)
        {
            *kept = None;
        }
    }
}

fn life(jwt: &str) -> Option<Duration> {
    let claims = jwt.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Duration::from_secs(claims["exp"].as_u64()?).checked_sub(now)
}

pub(super) fn random_digits() -> String {
    // Random hash keys are the only randomness in std, and these texts only have to differ.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}
