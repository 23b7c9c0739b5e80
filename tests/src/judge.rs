//! A reward function that records its requests, which show what the product takes for evidence.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::{Json, Router, extract::State};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// A running reward function, which rates every turn as good.
pub struct Judge {
    /// The address, for `judge.url`.
    pub url: String,
    asked: Arc<Mutex<Vec<Value>>>,
    /// The server's task; dropping it ends the server.
    _server: JoinSet<()>,
}

// === impl Judge ===

impl Judge {
    /// Starts one on a port that the system chooses.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a loopback port");
        let url = format!("http://{}/score", listener.local_addr().expect("bound"));
        let asked = Arc::default();
        let app = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&asked));
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, app)
                .await
                .expect("serving on loopback");
        });
        Self {
            url,
            asked,
            _server: server,
        }
    }

    /// Returns every turn that it was asked about, with the evidence: `{id, request, reply, next, ..}`.
    pub fn asked(&self) -> Vec<Value> {
        lock(&self.asked).clone()
    }
}

async fn answer(
    State(asked): State<Arc<Mutex<Vec<Value>>>>,
    Json(question): Json<Value>,
) -> Json<Value> {
    let turns = question["turns"].as_array().cloned().unwrap_or_default();
    let scores = vec![1; turns.len()];
    lock(&asked).extend(turns);
    Json(json!({ "scores": scores }))
}

fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
