//! An upstream that plays a script: the stand-in for a cloud we cannot reach.
//!
//! It speaks chat completions, Responses and Anthropic messages as their providers do, streamed and
//! whole, knows a few routes beside, keeps every request that it was sent, as bytes, and notes when
//! somebody hangs up on it.

mod api;
mod body;
mod chat;
mod json;
mod messages;
mod notes;
mod play;
mod responses;
mod routes;

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

use axum::Router;
use tokio::{net::TcpListener, task::JoinSet};

use self::notes::{Shared, lock};
pub use self::{
    notes::Received,
    play::{Asked, CACHED_TOKENS, COMPLETION_TOKENS, Failure, PROMPT_TOKENS, Part, Play},
};

pub struct Upstream {
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    shared: Arc<Shared>,
    /// Holds the server's task; dropping it ends the upstream.
    _server: JoinSet<()>,
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
