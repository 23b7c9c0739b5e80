//! A chat client that streams, measures, and distinguishes a broken stream from a complete one.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use reqwest::header::HeaderName;
use serde_json::{Value, json};

/// One reply as the client saw it.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The text of all deltas together.
    pub text: String,
    /// The time from sending the request to the first token of text.
    pub first_token: Duration,
    /// The time from sending the request to each event with text.
    pub arrivals: Vec<Duration>,
    /// The `finish_reason`, if one came.
    pub finish_reason: Option<String>,
    /// The reply's headers that the proxy added.
    pub adapter: Option<String>,
}

/// Why there is no complete reply.
#[derive(Debug)]
pub enum Refusal {
    Unreachable(String),
    /// An answer with an error status.
    Status {
        status: u16,
        /// Its `Retry-After`, in seconds.
        retry_after: Option<u64>,
        body: String,
    },
    /// The stream broke off.
    Cut {
        text: String,
    },
}

/// A client of one base URL.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base_url: String,
}

impl Client {
    /// Creates a client of `http://HOST:PORT`.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self::with_headers(base_url, &[])
    }

    /// Creates a client that sends these headers with each request.
    pub fn with_headers(base_url: impl Into<String>, headers: &[(&str, &str)]) -> Self {
        // Another test of the same process may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().expect("a header's name");
            (name, value.parse().expect("a header's value"))
        });
        let http = reqwest::Client::builder()
            .no_proxy()
            .default_headers(headers.collect())
            .build()
            .expect("a plain client");
        Self {
            http,
            base_url: base_url.into(),
        }
    }

    /// Streams one chat completion; `extra` fields are merged into the body.
    ///
    /// # Errors
    /// Returns a [`Refusal`] with the kind of failure.
    pub async fn stream(&self, messages: &[Value], extra: &Value) -> Result<Reply, Refusal> {
        let mut body = json!({"model": "default", "stream": true, "messages": messages});
        if let (Some(body), Some(extra)) = (body.as_object_mut(), extra.as_object()) {
            body.extend(extra.clone());
        }
        let sent = Instant::now();
        let url = format!("{}/v1/chat/completions", self.base_url);
        let response = self.http.post(url).json(&body).send().await;
        let response = response.map_err(|error| Refusal::Unreachable(format!("{error:?}")))?;
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|v| v.to_str().ok())
                .map(str::to_owned)
        };
        let (adapter, retry_after) = (header("x-metaclaw-adapter"), header("retry-after"));
        let status = response.status();
        if !status.is_success() {
            return Err(Refusal::Status {
                status: status.as_u16(),
                retry_after: retry_after.and_then(|seconds| seconds.parse().ok()),
                body: response.text().await.unwrap_or_default(),
            });
        }
        let mut reading = Reading::new(sent);
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            match chunk {
                Ok(bytes) => reading.feed(&bytes),
                Err(_) => return Err(Refusal::Cut { text: reading.text }),
            }
        }
        reading.finish(adapter)
    }

    /// Sends a GET that must succeed; returns the JSON.
    ///
    /// # Errors
    /// Returns an error if it does not succeed.
    pub async fn get_json(&self, path: &str) -> Result<Value> {
        let text = self.get_text(path).await?;
        serde_json::from_str(&text).with_context(|| format!("GET {path} gave no JSON: {text}"))
    }

    /// Builds a GET request.
    pub fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(format!("{}{path}", self.base_url))
    }

    /// Sends a GET that must succeed.
    ///
    /// # Errors
    /// Returns an error if it does not succeed.
    pub async fn get_text(&self, path: &str) -> Result<String> {
        let response = self.get(path).send().await?;
        let status = response.status();
        let text = response.text().await?;
        if !status.is_success() {
            bail!("GET {path}: {status}: {text}");
        }
        Ok(text)
    }

    /// Builds a POST of JSON.
    pub fn post(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.http
            .post(format!("{}{path}", self.base_url))
            .json(body)
    }
}

/// Reads one SSE stream.
struct Reading {
    sent: Instant,
    buffer: Vec<u8>,
    text: String,
    arrivals: Vec<Duration>,
    finish_reason: Option<String>,
    done: bool,
}

impl Reading {
    fn new(sent: Instant) -> Self {
        Self {
            sent,
            buffer: Vec::new(),
            text: String::new(),
            arrivals: Vec::new(),
            finish_reason: None,
            done: false,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(data) = line.trim().strip_prefix("data:") {
                self.event(data.trim());
            }
        }
    }

    fn event(&mut self, data: &str) {
        if data == "[DONE]" {
            self.done = true;
            return;
        }
        let event: Value = serde_json::from_str(data).expect("events are JSON");
        let choice = &event["choices"][0];
        if let Some(text) = choice["delta"]["content"]
            .as_str()
            .filter(|text| !text.is_empty())
        {
            self.text.push_str(text);
            self.arrivals.push(self.sent.elapsed());
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
    }

    fn finish(self, adapter: Option<String>) -> Result<Reply, Refusal> {
        if !self.done {
            return Err(Refusal::Cut { text: self.text });
        }
        Ok(Reply {
            first_token: self
                .arrivals
                .first()
                .copied()
                .unwrap_or_else(|| self.sent.elapsed()),
            text: self.text,
            arrivals: self.arrivals,
            finish_reason: self.finish_reason,
            adapter,
        })
    }
}
