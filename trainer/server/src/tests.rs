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
    testing::{tiny_config, tiny_nets, write_model},
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
    rig_in(folder_of_tiny(), limits, key)
}

/// A server whose chats have these limits.
fn rig_of_chats(text: metaclaw_trainer_chat::Limits) -> Rig {
    let limits = ServerLimits {
        text,
        ..ServerLimits::default()
    };
    rig_with(limits, None)
}

fn folder_of_tiny() -> TempDir {
    folder_of(&tiny_config())
}

fn folder_of(config: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny");
    std::fs::create_dir(&model).unwrap();
    write_model(&model, config, 7).unwrap();
    folder
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

    async fn delete(&self, path: &str) -> (StatusCode, Value) {
        let request = Request::delete(path).body(Body::empty()).unwrap();
        read(self.send(request).await).await
    }

    /// Begins a chat of one short message with these fields.
    async fn begin_chat(&self, more: &Value) -> Response<Body> {
        self.send(post("/v1/chat/completions", chat(more).to_string()))
            .await
    }

    /// Begins a chat that is streamed.
    async fn stream(&self, more: &Value) -> Response<Body> {
        let mut fields = more.clone();
        fields["stream"] = json!(true);
        self.begin_chat(&fields).await
    }

    /// Returns the chunks of a stream, each a JSON object, without `[DONE]`.
    async fn chunks(&self, more: &Value) -> Vec<Value> {
        let (_, text) = read(self.stream(more).await).await;
        let mut events = events(text.as_str().unwrap());
        assert_eq!(events.pop(), Some("[DONE]"));
        let read = |event: &&str| serde_json::from_str(event).unwrap();
        events.iter().map(read).collect()
    }

    async fn chat(&self, more: &Value) -> Value {
        self.ok("/v1/chat/completions", &chat(more)).await
    }

    /// Returns the record of a reply.
    async fn record(&self, reply: &Value) -> Value {
        let id = reply["id"].as_str().unwrap();
        let (status, record) = self.get(&format!("/v1/sampled/{id}")).await;
        assert_eq!(status, StatusCode::OK, "{record}");
        record
    }

    async fn create(&self) -> String {
        let run = self
            .ok("/v1/lora/create", &json!({"rank": 4, "seed": 1}))
            .await;
        run["session_id"].as_str().unwrap().to_owned()
    }

    async fn forward_backward(&self, run: &str, datums: &[Value]) -> Value {
        let body = json!({"session_id": run, "datums": datums, "loss_fn": "cross_entropy"});
        self.ok("/v1/train/forward_backward", &body).await
    }

    async fn optim_step(&self, run: &str, learning_rate: f64) -> Value {
        let body = json!({"session_id": run, "learning_rate": learning_rate});
        self.ok("/v1/train/optim_step", &body).await
    }

    /// Makes a step on the usual sequence, and returns the loss before it.
    async fn train_once(&self, run: &str) -> (f64, Value) {
        let passed = self.forward_backward(run, &[datum()]).await;
        let loss = passed["loss"].as_f64().unwrap();
        (loss, self.optim_step(run, 0.01).await)
    }

    async fn save_weights(&self, run: &str, name: &str) -> Value {
        let body = json!({"session_id": run, "name": name});
        self.ok("/v1/weights/save", &body).await
    }

    async fn load_checkpoint(&self, run: &str, path: &Value) -> Value {
        let body = json!({"session_id": run, "path": path});
        self.ok("/v1/checkpoint/load", &body).await
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

/// A sequence that continues with 5 after everything, for cross_entropy.
fn datum() -> Value {
    json!({"model_input_tokens": [104, 105, 5, 5], "target_tokens": [5, 5, 5, 5], "weights": [1, 1, 1, 1]})
}

/// A chat body of one short message.
fn chat(more: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    with(
        json!({"messages": messages, "seed": 1, "max_tokens": 8}),
        more,
    )
}

/// The body with these fields besides, or instead.
fn with(mut body: Value, more: &Value) -> Value {
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
