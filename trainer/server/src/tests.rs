//! The server over the real engine, with a tiny random model in a folder of its own.

mod chat;
mod choices;
mod fork;
mod keeping;
mod refusals;
mod remote;
mod tinker;
mod training;

use axum::{
    Router,
    body::Body,
    http::{Method, Request, Response, StatusCode, header},
};
use http_body_util::BodyExt as _;
use metaclaw_engine::{
    engine::{Dtype, EngineConfig},
    testing::write_tiny_model,
};
use metaclaw_trainer_api::ApiKey;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::{
    app,
    host::{Host, HostConfig},
    state::{ServerLimits, TrainerApp},
};

/// A server without a socket; its files are gone when it is dropped.
struct Rig {
    router: Router,
    app: TrainerApp,
    folder: TempDir,
}

fn rig() -> Rig {
    rig_with(ServerLimits::default(), None)
}

fn rig_with(limits: ServerLimits, key: Option<&str>) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny");
    std::fs::create_dir(&model).unwrap();
    write_tiny_model(&model, 7).unwrap();
    rig_in(folder, limits, key)
}

/// A server of the model in `folder`.
fn rig_in(folder: TempDir, limits: ServerLimits, key: Option<&str>) -> Rig {
    let model = folder.path().join("tiny");
    let [cache, checkpoints] = ["cache", "checkpoints"].map(|name| folder.path().join(name));
    let host = Host::start(HostConfig {
        model: Some(model),
        fetcher: crate::host::Fetcher::none(),
        engine: EngineConfig {
            dtype: Some(Dtype::F32),
            threads: 1,
            max_waiting: 256,
            ..EngineConfig::new("".into(), cache, checkpoints)
        },
        n_kept: 5,
    });
    let app = TrainerApp::new(host.unwrap(), limits, key.map(ApiKey::new));
    Rig {
        router: app::router(&app),
        app,
        folder,
    }
}

impl Rig {
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn post_raw(&self, path: &str, body: impl Into<Body>) -> (StatusCode, Value) {
        read(self.send(post(path, body)).await).await
    }

    async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.post_raw(path, body.to_string()).await
    }

    /// A POST that must succeed.
    async fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, reply) = self.post(path, body).await;
        assert_eq!(status, StatusCode::OK, "{path}: {reply}");
        reply
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        read(self.send(request).await).await
    }

    /// A message with this folder's name replaced, which differs from run to run.
    fn clean(&self, text: &str) -> String {
        text.replace(&self.folder.path().display().to_string(), "[folder]")
    }
}

fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into())
        .unwrap()
}

async fn read(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, value)
}

/// A chat body of one short message.
fn chat(more: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "hi"}],
        "seed": 1, "max_tokens": 8,
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    body
}

/// The `data:` of each event.
fn events(text: &str) -> Vec<&str> {
    text.split_terminator("\n\n")
        .map(|event| event.strip_prefix("data: ").unwrap())
        .collect()
}
