//! An upstream that follows a script, in place of a cloud service that tests cannot reach.
//!
//! It has chat completions, Responses and Anthropic messages in their providers' forms, streamed and whole, and a few
//! other routes; it stores every request, as bytes, and records when a client disconnects.

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
    /// The server's task; dropping it ends the upstream.
    _server: JoinSet<()>,
}

impl Upstream {
    /// Starts an upstream that does the same with every request.
    pub async fn start(play: Play) -> Self {
        Self::scripted(move |_| play).await
    }

    /// Starts an upstream, on a port that the system chooses, that handles each request for a reply as `script` says.
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

    /// Returns every request so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    /// Returns when clients gave up their replies.
    pub fn hang_ups(&self) -> Vec<SystemTime> {
        lock(&self.shared.hang_ups).clone()
    }
}
