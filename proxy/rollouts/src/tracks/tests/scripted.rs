//! A model that follows a script, and an agent's run against it.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::post,
};
use metaclaw_chat::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

use super::super::{AgentError, AgentSettings, EpisodeScore, Track};
use crate::sandbox::{Sandbox, SandboxChoice, SandboxLimits};

/// One reply of the model.
#[derive(Debug, Clone)]
pub(super) enum Scripted {
    Text(String),
    Call(&'static str, Value),
    Error(u16, Value),
    /// A refusal with status 503 and this `Retry-After`.
    Busy(&'static str),
}

/// A model that gives its replies in order, and then the last one again.
pub(super) struct ScriptedPolicy {
    pub(super) base_url: String,
    state: Arc<ScriptState>,
    _server: JoinSet<()>,
}

struct ScriptState {
    replies: Vec<Scripted>,
    requests: Mutex<Vec<Value>>,
}

/// What an agent did.
pub(super) struct AgentRun {
    pub(super) result: Result<EpisodeScore, AgentError>,
    /// The file that the runner reads, if it was written.
    pub(super) reward: Option<Value>,
    /// The requests that the model got.
    pub(super) requests: Vec<Value>,
}

// === impl Scripted ===

impl Scripted {
    pub(super) fn bash(command: &str) -> Self {
        Self::Call("bash", json!({ "command": command }))
    }

    pub(super) fn done() -> Self {
        Self::Text("Done.".to_owned())
    }

    fn message(&self, number: usize) -> Value {
        match self {
            Self::Text(text) => json!({ "role": "assistant", "content": text }),
            Self::Call(name, arguments) => json!({
                "role": "assistant",
                "content": null,
                "tool_calls": [{
                    "index": 0,
                    "id": format!("call-{number}"),
                    "type": "function",
                    "function": { "name": name, "arguments": arguments.to_string() },
                }],
            }),
            Self::Error(_, error) => error.clone(),
            Self::Busy(_) => json!({ "error": { "message": "busy" } }),
        }
    }
}

// === impl ScriptedPolicy ===

impl ScriptedPolicy {
    pub(super) async fn start(replies: Vec<Scripted>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/rollout/r1/v1", listener.local_addr().unwrap());
        let state = Arc::new(ScriptState {
            replies,
            requests: Mutex::default(),
        });
        let app = Router::new()
            .route("/rollout/r1/v1/chat/completions", post(answer))
            .with_state(Arc::clone(&state));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            base_url,
            state,
            _server: server,
        }
    }
}

async fn answer(State(state): State<Arc<ScriptState>>, Json(body): Json<Value>) -> Response {
    let is_stream = body["stream"] == true;
    let number = {
        let mut requests = state.requests.lock().unwrap();
        requests.push(body);
        requests.len() - 1
    };
    let last = state.replies.len() - 1;
    let reply = &state.replies[number.min(last)];
    let message = reply.message(number);
    match reply {
        Scripted::Error(status, _) => {
            let status = StatusCode::from_u16(*status).unwrap();
            return (status, message.to_string()).into_response();
        }
        Scripted::Busy(wait) => {
            let header = [(RETRY_AFTER, *wait)];
            return (StatusCode::SERVICE_UNAVAILABLE, header, message.to_string()).into_response();
        }
        Scripted::Text(_) | Scripted::Call(..) => {}
    }
    let choice = |name: &str| json!({ "choices": [{ name: message, "finish_reason": "stop" }] });
    let body = if is_stream {
        format!("data: {}\n\ndata: [DONE]\n\n", choice("delta"))
    } else {
        choice("message").to_string()
    };
    (StatusCode::OK, body).into_response()
}

// === functions ===

pub(super) fn http() -> reqwest::Client {
    // A second installation is refused, and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Runs a track's agent on a task, with a model that gives these replies.
pub(super) async fn run(track: Track, task: &Value, replies: Vec<Scripted>) -> AgentRun {
    let folder = TempDir::new().unwrap();
    run_in(folder.path(), track, task, replies).await
}

/// Runs a track's agent on a task, in a folder.
pub(super) async fn run_in(
    folder: &Path,
    track: Track,
    task: &Value,
    replies: Vec<Scripted>,
) -> AgentRun {
    let policy = ScriptedPolicy::start(replies).await;
    let files = TempDir::new().unwrap();
    let path = |name: &str| files.path().join(name);
    fs::write(path("task.json"), task.to_string()).unwrap();
    let settings = AgentSettings {
        base_url: policy.base_url.clone(),
        api_key: Secret::from("key"),
        model: "policy".to_owned(),
        task: path("task.json"),
        reward: path("reward.json"),
        sandbox: SandboxChoice::Auto,
        max_turns: None,
        gui_server: None,
        folder: folder.to_owned(),
    };
    let result = track.run_agent(&settings, http()).await;
    let written = fs::read(path("reward.json")).ok();
    AgentRun {
        result,
        reward: written.map(|it| serde_json::from_slice(&it).unwrap()),
        requests: policy.state.requests.lock().unwrap().clone(),
    }
}

/// Returns whether this machine has a sandbox. Where the whole suite runs it has to.
pub(super) async fn has_sandbox() -> bool {
    let started = Sandbox::start(SandboxChoice::Auto, &SandboxLimits::default()).await;
    match started {
        Ok(sandbox) => sandbox.close().await.is_ok(),
        Err(error) => {
            println!("skipped: {error}");
            assert!(
                std::env::var_os("METACLAW_TEST_BIN_DIR").is_none(),
                "the whole suite needs a sandbox: {error}"
            );
            false
        }
    }
}

impl AgentRun {
    #[track_caller]
    pub(super) fn score(&self) -> f64 {
        let score = self.result.as_ref().unwrap().score;
        assert_eq!(self.reward.as_ref().unwrap()["score"], score);
        score
    }

    /// Returns what the model was shown last, before its reply with this number.
    pub(super) fn shown(&self, number: usize) -> &str {
        let messages = self.requests[number]["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].as_str().unwrap()
    }
}
