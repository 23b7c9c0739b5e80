//! One HTTP exchange: headers, deadline, and what is known after a failure.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, Response, header};

use super::{auth::Auth, config::TinkerConfig, words::Whose};
use crate::BackendError;

/// The SDK version that this client corresponds to. Servers choose their dialect by it.
pub(super) const SDK_VERSION: &str = "0.38.0";
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The accepted forms of an answer.
const BOTH: &str = "application/x-protobuf, application/json";
const JSON: &str = "application/json";
pub(super) const PROTOBUF: &str = "application/x-protobuf";

/// One request, which may be sent again unchanged.
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

/// A body with its format.
#[derive(Debug, Clone)]
pub(super) enum RequestBody {
    Json(Bytes),
    Protobuf(Bytes),
    /// Protobuf, compressed by zstd.
    Compressed(Bytes),
}

/// An answer of any status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_protobuf: bool,
    pub(super) body: Bytes,
    /// The pause that the server asks for before the request is repeated.
    pub(super) retry_after: Option<Duration>,
    /// Whether the credential was refused because it has expired.
    pub(super) is_stale_token: bool,
}

/// Sends requests to one server.
#[derive(Debug)]
pub(super) struct Http {
    client: reqwest::Client,
    /// It has no `/` at its end.
    url: String,
    auth: Auth,
}

// === impl HttpRequest ===

impl HttpRequest {
    /// A POST of JSON.
    ///
    /// # Errors
    /// Returns [`BackendError::Request`] for values that JSON cannot express.
    pub(super) fn json(
        call: &'static str,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<Self, BackendError> {
        let bytes = serde_json::to_vec(body).map_err(|error| BackendError::Request {
            call,
            why: error.to_string(),
        })?;
        Ok(Self::post(call, path, RequestBody::Json(bytes.into())))
    }

    pub(super) fn post(call: &'static str, path: &str, body: RequestBody) -> Self {
        Self {
            call,
            method: Method::POST,
            path: path.to_owned(),
            body: Some(body),
            idempotency: Some(super::random::idempotency_key()),
            deadline: QUICK,
        }
    }

    /// A request without a body.
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

/// Returns the timeout of one exchange that computes nothing.
pub(super) const QUICK: Duration = Duration::from_secs(30);

// === impl Http ===

impl Http {
    pub(super) fn new(config: &TinkerConfig) -> Self {
        let url = config.url.trim_end_matches('/');
        let url = url.strip_suffix("/api/v1").unwrap_or(url).to_owned();
        Self {
            client: config.client.clone(),
            url,
            auth: Auth::new(config.key.clone()),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn auth(&self) -> &Auth {
        &self.auth
    }

    /// Returns the server's name for the errors of a call.
    pub(super) fn whose(&self, call: &'static str) -> Whose<'_> {
        Whose {
            call,
            url: &self.url,
        }
    }

    /// Sends the request. It is sent again with a new token if the server says that the token has expired, and a GET is
    /// sent again if the connection broke.
    ///
    /// # Errors
    /// Where no answer came. Whatever status comes is an answer.
    pub(super) async fn send(&self, request: &HttpRequest) -> Result<Answer, BackendError> {
        let token = self.token().await?;
        let answer = match self.exchange(request, &token).await {
            // A server may close an idle connection just when it is used again. Reading twice changes nothing.
            Err(BackendError::Broken { .. }) if request.method == Method::GET => {
                self.exchange(request, &token).await?
            }
            answered => answered?,
        };
        if answer.is_stale_token && self.auth.is_by_token() {
            self.auth.forget(&token).await;
            let token = self.token().await?;
            return self.exchange(request, &token).await;
        }
        Ok(answer)
    }

    async fn token(&self) -> Result<String, BackendError> {
        let call = "auth/token";
        let by_key = async |key: &str| {
            let request = HttpRequest::json(call, call, &serde_json::Map::new())?;
            self.exchange(&request, key).await?.json(self.whose(call))
        };
        self.auth.token(by_key).await
    }

    /// Sends once with this key or token.
    pub(super) async fn exchange(
        &self,
        request: &HttpRequest,
        key: &str,
    ) -> Result<Answer, BackendError> {
        let sent = self.builder(request, key).send().await;
        let response = sent.map_err(|error| self.failed(request, error))?;
        self.read(request, response).await
    }

    fn builder(&self, request: &HttpRequest, key: &str) -> reqwest::RequestBuilder {
        let url = format!("{}/api/v1/{}", self.url, request.path);
        let builder = self.client.request(request.method.clone(), url);
        let mut builder = builder
            .timeout(request.deadline)
            .header(header::ACCEPT, BOTH)
            .header("x-api-key", key)
            .header("x-sdk-version", SDK_VERSION)
            .header(
                header::USER_AGENT,
                concat!("metaclaw/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(idempotency) = &request.idempotency {
            builder = builder.header("x-idempotency-key", idempotency);
        }
        match &request.body {
            None => builder,
            Some(RequestBody::Json(bytes)) => builder
                .header(header::CONTENT_TYPE, JSON)
                .body(bytes.clone()),
            Some(RequestBody::Protobuf(bytes)) => builder
                .header(header::CONTENT_TYPE, PROTOBUF)
                .body(bytes.clone()),
            Some(RequestBody::Compressed(bytes)) => builder
                .header(header::CONTENT_TYPE, PROTOBUF)
                .header(header::CONTENT_ENCODING, "zstd")
                .body(bytes.clone()),
        }
    }

    async fn read(
        &self,
        request: &HttpRequest,
        response: Response,
    ) -> Result<Answer, BackendError> {
        let status = response.status().as_u16();
        let text = |name: &str| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_ascii_lowercase)
        };
        let is_protobuf = text("content-type").is_some_and(|it| it.starts_with(PROTOBUF));
        let seconds = |name: &str, unit: f64| text(name)?.parse::<f64>().ok().map(|it| it * unit);
        let retry_after = seconds("retry-after-ms", 0.001).or_else(|| seconds("retry-after", 1.0));
        let retry_after = retry_after.filter(|it| *it > 0.0 && it.is_finite());
        let retry_after =
            retry_after.map(|it| Duration::from_secs_f64(it.min(LONGEST_PAUSE.as_secs_f64())));
        let stale = text("www-authenticate").is_some_and(|it| it.contains("invalid_token"));
        let body = response.bytes().await;
        let body = body.map_err(|error| self.failed(request, error))?;
        Ok(Answer {
            status,
            is_protobuf,
            body,
            retry_after,
            is_stale_token: status == 401 && stale,
        })
    }

    fn failed(&self, request: &HttpRequest, source: reqwest::Error) -> BackendError {
        let (call, url) = (request.call, self.url.clone());
        // A timeout while connecting is both kinds of error; what matters is that nothing was sent.
        if source.is_connect() {
            return BackendError::Connect { call, url, source };
        }
        if source.is_builder() {
            let why = source.to_string();
            return BackendError::Request { call, why };
        }
        if source.is_timeout() {
            let after = request.deadline;
            return BackendError::Timeout { call, url, after };
        }
        BackendError::Broken { call, url, source }
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
    pub(super) fn json<T: serde::de::DeserializeOwned>(
        &self,
        whose: Whose<'_>,
    ) -> Result<T, BackendError> {
        if !self.is_success() {
            return Err(whose.refusal(self.status, &self.body));
        }
        let read = serde_json::from_slice(&self.body);
        read.map_err(|error| whose.unreadable(error.to_string()))
    }
}
