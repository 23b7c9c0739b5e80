//! An upstream that plays a script: the stand-in for a cloud we cannot reach.
//!
//! It speaks chat completions, Responses and Anthropic messages as their providers do, streamed and
//! whole, knows a few routes beside, keeps every request that it was sent, as bytes, and notes when
//! somebody hangs up on it.

mod api;
mod body;
mod chat;
mod messages;
mod play;
mod responses;
mod routes;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use axum::{
    Router,
    body::Bytes,
    http::{
        HeaderMap, HeaderName, Uri,
        header::{CONNECTION, HOST},
    },
};
use tokio::{net::TcpListener, task::JoinSet};

pub use self::play::{Asked, Failure, Part, Play};

/// The usage that every reply reports.
pub const PROMPT_TOKENS: u64 = 1234;
/// Of those, from the provider's cache.
pub const CACHED_TOKENS: u64 = 1000;
/// And of the reply.
pub const COMPLETION_TOKENS: u64 = 7;

/// The model that answers, whatever model was asked for.
const MODEL: &str = "mock-model";

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// Path and query.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// The body's bytes.
    pub body: Bytes,
}

impl Received {
    /// The headers by name, without those of the one connection: what a relay must not change.
    pub fn end_to_end(&self) -> BTreeMap<String, String> {
        let is_of_the_message = |name: &HeaderName| *name != HOST && *name != CONNECTION;
        let headers = self.headers.iter();
        headers
            .filter(|(name, _)| is_of_the_message(name))
            .map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()))
            .collect()
    }
}

/// A running upstream.
pub struct Upstream {
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    shared: Arc<Shared>,
    /// Holds the server's task; dropping it ends the upstream.
    _server: JoinSet<()>,
}

struct Shared {
    script: Box<dyn Fn(&Asked<'_>) -> Play + Send + Sync>,
    received: Mutex<Vec<Received>>,
    hang_ups: Mutex<Vec<SystemTime>>,
}

impl Upstream {
    /// Starts an upstream that does the same with every request.
    pub async fn start(play: Play) -> Self {
        Self::scripted(move |_| play).await
    }

    /// Starts an upstream, on a port of the system's choice, that does with each request for a reply
    /// what `script` says.
    pub async fn scripted(script: impl Fn(&Asked<'_>) -> Play + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port");
        let base_url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared {
            script: Box::new(script),
            received: Mutex::default(),
            hang_ups: Mutex::default(),
        });
        let app = Router::new()
            .fallback(routes::answer)
            .with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, app)
                .await
                .expect("serving on loopback");
        });
        Self {
            base_url,
            shared,
            _server: server,
        }
    }

    /// Every request so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    /// When replies were given up by whoever had asked for them.
    pub fn hang_ups(&self) -> Vec<SystemTime> {
        lock(&self.shared.hang_ups).clone()
    }
}

/// A test that panicked elsewhere does not make these lists wrong.
fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
