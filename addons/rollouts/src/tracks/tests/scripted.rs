//! A model that follows a script, and an agent's run against it.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use metaclaw_chat::Secret;
use metaclaw_test_kit::{Reply, Request, Server, chat};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::{AgentError, AgentSettings, EpisodeScore, Track};
use crate::sandbox::{Sandbox, SandboxChoice, SandboxLimits};

#[derive(Debug, Clone)]
pub(super) enum Scripted {
    Text(String),
    Call(&'static str, Value),
    Error(u16, Value),
    /// A refusal with status 503 and this `Retry-After`.
    Busy(&'static str),
}

pub(super) struct AgentRun {
    pub(super) result: Result<EpisodeScore, AgentError>,
    pub(super) reward: Option<Value>,
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

/// A model that gives its replies in order, and then the last one again.
fn policy(replies: Vec<Scripted>) -> Server {
    let n_asked = AtomicUsize::new(0);
    Server::new(move |request| {
        let number = n_asked.fetch_add(1, Ordering::SeqCst);
        let reply = &replies[number.min(replies.len() - 1)];
        let message = reply.message(number);
        match reply {
            Scripted::Error(status, _) => return Reply::status(*status, message),
            Scripted::Busy(wait) => return Reply::status(503, message).header("retry-after", wait),
            Scripted::Text(_) | Scripted::Call(..) => {}
        }
        if request.json()["stream"] == true {
            let choice = json!({ "choices": [{ "delta": message, "finish_reason": "stop" }] });
            return Reply::events([chat::event(&choice), "data: [DONE]\n\n".to_owned()]);
        }
        Reply::json(chat::completion(&message))
    })
}

// === functions ===

pub(super) fn http() -> reqwest::Client {
    // A second installation is refused, and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

pub(super) async fn run(track: Track, task: &Value, replies: Vec<Scripted>) -> AgentRun {
    let folder = TempDir::new().unwrap();
    run_in(folder.path(), track, task, replies).await
}

pub(super) async fn run_in(
    folder: &Path,
    track: Track,
    task: &Value,
    replies: Vec<Scripted>,
) -> AgentRun {
    let policy = policy(replies);
    let files = TempDir::new().unwrap();
    let path = |name: &str| files.path().join(name);
    fs::write(path("task.json"), task.to_string()).unwrap();
    let settings = AgentSettings {
        base_url: format!("{}/rollout/r1/v1", policy.url()),
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
        requests: policy.asked().iter().map(Request::json).collect(),
    }
}

/// Ends a test that needs a sandbox on a machine that has none.
macro_rules! needs_sandbox {
    () => {
        if !$crate::tracks::tests::scripted::has_sandbox().await {
            return;
        }
    };
}
pub(super) use needs_sandbox;

/// Returns whether this machine has a sandbox. Where the whole suite runs it has to.
pub(crate) async fn has_sandbox() -> bool {
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

    pub(super) fn shown(&self, number: usize) -> &str {
        let messages = self.requests[number]["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].as_str().unwrap()
    }
}
