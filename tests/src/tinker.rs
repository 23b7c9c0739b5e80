//! A service with Tinker's API that answers chats by a script, in place of a model that can call tools and think.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use metaclaw_trainer_api::tinker::{
    SampleOutput, Sequence,
    json::{JsonSample, SampleCall},
};
use metaclaw_trainer_text::tokenizer::ChatTokenizer;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// The only model that it offers.
pub const MODEL: &str = "org/scripted";
/// The longest sequence of that model.
const CONTEXT: u32 = 128_000;

/// Returns the model's reply to a prompt.
type Script = Box<dyn Fn(&str) -> String + Send + Sync>;

pub struct Tinker {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    _server: JoinSet<()>,
}

struct Shared {
    tokenizer: ChatTokenizer,
    script: Script,
    n: AtomicU64,
    results: Mutex<BTreeMap<String, JsonSample>>,
}

// === impl Tinker ===

impl Tinker {
    /// Starts one on a port that the system chooses. Ids are those of the tokenizer in this folder.
    pub async fn scripted(
        tokenizer: &Path,
        script: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared {
            tokenizer: ChatTokenizer::load(tokenizer).expect("a tokenizer"),
            script: Box::new(script),
            n: AtomicU64::new(0),
            results: Mutex::default(),
        });
        let api = Router::new()
            .route("/client/config", post(async || Json(json!({}))))
            .route("/get_server_capabilities", get(capabilities))
            .route("/create_session", post(session))
            .route("/create_sampling_session", post(sampler))
            .route("/session_heartbeat", post(async || Json(json!({}))))
            .route("/checkpoints", get(checkpoints))
            .route("/asample", post(sample))
            .route("/retrieve_future", post(result))
            .fallback(async || StatusCode::NOT_FOUND)
            .with_state(shared);
        let app = Router::new().nest("/api/v1", api);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self {
            url,
            _server: tasks,
        }
    }
}

// === impl Shared ===

impl Shared {
    fn next(&self) -> u64 {
        self.n.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a reply to a prompt: the script's text and the model's end token.
    fn reply(&self, prompt: &[u32]) -> Sequence {
        let said = (self.script)(&self.tokenizer.decode_special(prompt));
        let mut tokens = self.tokenizer.encode(&said).expect("ids");
        tokens.extend(self.tokenizer.end_id());
        Sequence {
            logprobs: Some(vec![-0.5; tokens.len()]),
            tokens,
            ..Sequence::default()
        }
    }
}

async fn capabilities() -> Json<Value> {
    let model = json!({"model_name": MODEL, "trainable": true, "max_context_length": CONTEXT});
    Json(json!({"supported_models": [model]}))
}

async fn session(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let id = format!("sess-{}", shared.next());
    Json(json!({"type": "create_session", "session_id": id}))
}

async fn sampler(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let id = format!("sampler-{}", shared.next());
    Json(json!({"type": "create_sampling_session", "sampling_session_id": id}))
}

async fn checkpoints() -> Json<Value> {
    let cursor = json!({"offset": 0, "limit": 100, "total_count": 0});
    Json(json!({"checkpoints": [], "cursor": cursor}))
}

async fn sample(State(shared): State<Arc<Shared>>, Json(asked): Json<SampleCall>) -> Response {
    let Ok(prompt) = asked.prompt.into_tokens() else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let output = SampleOutput {
        sequences: vec![shared.reply(&prompt); asked.num_samples as usize],
        ..SampleOutput::default()
    };
    let id = format!("req-{}", shared.next());
    let mut results = shared
        .results
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    results.insert(id.clone(), output.to_json(&[]));
    Json(json!({"request_id": id})).into_response()
}

async fn result(State(shared): State<Arc<Shared>>, Json(asked): Json<Value>) -> Response {
    let id = asked["request_id"].as_str().unwrap_or_default();
    let results = shared
        .results
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    match results.get(id) {
        Some(output) => Json(output).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
