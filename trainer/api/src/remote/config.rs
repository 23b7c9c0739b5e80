//! Where a training server is, and how it is called.

use std::{fmt, sync::Arc, time::Duration};

/// A key, shown only as `sk-…abcd`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Arc<str>);

/// Where a training server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// For example `http://127.0.0.1:8000`; a trailing `/` or `/v1` is dropped.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub key: Option<ApiKey>,
}

/// The settings of a [`crate::RemoteBackend`].
pub struct RemoteConfig {
    /// The HTTP client, which the caller creates, so that redirects, proxies and TLS are set in one place.
    pub client: reqwest::Client,
    /// The server's present address; `None` while none is running.
    pub endpoint: Arc<dyn Fn() -> Option<Endpoint> + Send + Sync>,
    /// The timeout of calls that train or sample: `rl.remote_timeout_s`, 600 s by default.
    pub timeout: Duration,
    /// The model of runs for which the caller names none, as the server finds it: `rl.model`. A server that was started
    /// without a model loads it; a server with another model refuses. Without it, the run uses the loaded model.
    pub base_model: Option<String>,
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
        let tail = self
            .0
            .char_indices()
            .rev()
            .nth(3)
            .map(|(at, _)| &self.0[at..]);
        match tail {
            Some(tail) if self.0.len() >= 12 => write!(f, "sk-…{tail}"),
            Some(_) | None => f.write_str("sk-…"),
        }
    }
}

// === impl RemoteConfig ===

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("endpoint", &(self.endpoint)())
            .field("timeout", &self.timeout)
            .field("base_model", &self.base_model)
            .finish_non_exhaustive()
    }
}
