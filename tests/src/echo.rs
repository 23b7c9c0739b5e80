//! An upstream for many conversations at once: it repeats what it was told, at a set pace.
//!
//! So every reply, in the log or at the client, shows which request it answers.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Uri},
    response::Response,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::upstream::Received;

/// A running upstream. It has streamed chat completions only.
#[derive(Debug)]
pub struct Echo {
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    shared: Arc<Shared>,
    /// The server's task; dropping it ends the upstream.
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    words: usize,
    every: Duration,
    received: Mutex<Vec<Received>>,
}

/// Returns the reply to `told`: the same text, and this many words more.
pub fn reply(told: &str, words: usize) -> String {
    (1..=words).fold(told.to_owned(), |text, n| format!("{text} {n}"))
}

impl Echo {
    /// Starts an upstream on a port that the system chooses; its replies have `words` additional words, and an event
    /// every `every`.
    pub async fn start(words: usize, every: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port");
        let base_url = format!("http://{}", listener.local_addr().expect("bound"));
        let received = Mutex::default();
        let shared = Arc::new(Shared {
            words,
            every,
            received,
        });
        let app = Router::new()
            .fallback(answer)
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
        let received = self.shared.received.lock();
        received.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let received = Received { uri, headers, body };
    let mut all = shared
        .received
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    all.push(received);
    drop(all);
    let messages = request["messages"].as_array();
    let told = messages.and_then(|messages| messages.last()?["content"].as_str());
    let events = events(&reply(told.unwrap_or_default(), shared.words));
    let every = shared.every;
    let stream = futures_util::stream::iter(events).then(move |event| async move {
        tokio::time::sleep(every).await;
        Ok::<_, Infallible>(event)
    });
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from_stream(stream))
        .expect("a plain response")
}

fn events(text: &str) -> Vec<Bytes> {
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let words = text.split_inclusive(' ');
    let mut events: Vec<String> = words
        .map(|word| chunk(json!({"content": word}), None))
        .collect();
    events.push(chunk(json!({}), Some("stop")));
    events.push("data: [DONE]\n\n".to_owned());
    events.into_iter().map(Bytes::from).collect()
}
