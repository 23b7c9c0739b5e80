//! The address of a training server, and the settings of its client.

use std::{fmt, sync::Arc, time::Duration};

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

/// The settings of a [`crate::RemoteBackend`].
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
