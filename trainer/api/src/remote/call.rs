//! One call: sends the request, waits until a deadline, and reads the answer or the error.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, header};
use serde::{Serialize, de::DeserializeOwned};

use super::config::{Endpoint, RemoteConfig};
use crate::{BackendError, ErrorBody};

/// How much of an error's text goes into a message.
const SHOWN: usize = 600;

/// A call before it is sent.
#[derive(Debug)]
pub(super) struct RemoteCall<'a> {
    config: &'a RemoteConfig,
    endpoint: Endpoint,
    name: &'static str,
    deadline: Duration,
}

impl<'a> RemoteCall<'a> {
    pub(super) fn new(
        config: &'a RemoteConfig,
        name: &'static str,
        deadline: Duration,
    ) -> Result<Self, BackendError> {
        let endpoint = (config.endpoint)().ok_or(BackendError::NoEndpoint { call: name })?;
        Ok(Self {
            config,
            endpoint,
            name,
            deadline,
        })
    }

    pub(super) async fn get<T: DeserializeOwned>(self, path: &str) -> Result<T, BackendError> {
        let request = self.request(Method::GET, path);
        self.send(request).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, BackendError> {
        let bytes = serde_json::to_vec(body).map_err(|error| BackendError::Request {
            call: self.name,
            why: error.to_string(),
        })?;
        let request = self
            .request(Method::POST, path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(bytes);
        self.send(request).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let base = self.endpoint.url.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        let request = self
            .config
            .client
            .request(method, format!("{base}/{path}"))
            .timeout(self.deadline);
        match &self.endpoint.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, BackendError> {
        let response = request.send().await.map_err(|error| self.failed(error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(response).await);
        }
        let body = response.bytes().await.map_err(|error| self.failed(error))?;
        serde_json::from_slice(&body).map_err(|error| BackendError::Unreadable {
            call: self.name,
            url: self.endpoint.url.clone(),
            why: error.to_string(),
        })
    }

    fn failed(&self, source: reqwest::Error) -> BackendError {
        let (call, url) = (self.name, self.endpoint.url.clone());
        // A connect that timed out is both; nothing was sent, and that is what matters.
        if source.is_connect() {
            return BackendError::Connect { call, url, source };
        }
        if source.is_builder() {
            let why = source.to_string();
            return BackendError::Request { call, why };
        }
        if source.is_timeout() {
            let after = self.deadline;
            return BackendError::Timeout { call, url, after };
        }
        BackendError::Broken { call, url, source }
    }

    /// The error that the server wrote; a fork's server answers with text or with FastAPI's shape.
    async fn refused(&self, response: Response) -> BackendError {
        let status = response.status().as_u16();
        let body = match response.bytes().await {
            Ok(body) => body,
            Err(error) => return self.failed(error),
        };
        let (message, code, param) = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => (body.error.message, body.error.code, body.error.param),
            Err(_) => (String::from_utf8_lossy(&body).into_owned(), None, None),
        };
        BackendError::Status {
            call: self.name,
            url: self.endpoint.url.clone(),
            status,
            code,
            param,
            message: message.chars().take(SHOWN).collect(),
        }
    }
}
