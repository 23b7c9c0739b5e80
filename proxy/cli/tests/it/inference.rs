//! A training server for which another server answers chats: that one has its own say about adapters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::{Json, Router, extract, http::StatusCode, routing};
use metaclaw_turns::{TurnLog, TurnsConfig};
use serde_json::{Value, json};

use crate::harness::{TestHome, serve, until};

const ADAPTER: &str = "_default-0badcafe-000001";

/// The server that answers chats.
#[derive(Debug, Default)]
struct State {
    is: &'static str,
    /// How it answers when it is to load an adapter.
    loads: StatusCode,
    /// How often the proxy has asked for the list of adapters since it was so; after each look at how it is.
    n_listed: usize,
}

type Chats = Arc<Mutex<State>>;

fn lock(chats: &Chats) -> MutexGuard<'_, State> {
    chats.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(chats: &Chats, is: &'static str, loads: StatusCode) {
    *lock(chats) = State {
        is,
        loads,
        n_listed: 0,
    };
}

async fn health(extract::State(chats): extract::State<Chats>) -> Json<Value> {
    let state = lock(&chats).is;
    let capabilities = json!({"sampled": true, "forward": true, "manifests": true});
    let inference = json!({"url": "http://127.0.0.1:9", "state": state});
    Json(
        json!({"status": "healthy", "model": "m", "capabilities": capabilities, "inference": inference}),
    )
}

async fn load(extract::State(chats): extract::State<Chats>) -> (StatusCode, Json<Value>) {
    let status = lock(&chats).loads;
    let code = (status == 400).then_some("adapter_refused");
    let refusal =
        json!({"error": {"message": "rank 32 is greater than max_lora_rank 16", "code": code}});
    let loaded = json!({"status": "ok", "step": 1, "sha256": "", "bytes": 1});
    let answer = if status.is_success() { loaded } else { refusal };
    (status, Json(answer))
}

async fn adapters(extract::State(chats): extract::State<Chats>) -> Json<Value> {
    lock(&chats).n_listed += 1;
    Json(json!({"adapters": [{"name": ADAPTER, "loaded": true}]}))
}

/// The training server itself has the adapter, and draws from it.
fn server(chats: &Chats) -> Router {
    let sequence = json!({"tokens": [1], "logprobs": [0.0], "stop_reason": "length"});
    let sample = json!({"sequences": [sequence]});
    let chat = async |Json(asked): Json<Value>| {
        let message = json!({"role": "assistant", "content": "Yes."});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        Json(json!({"id": "chatcmpl-1", "model": asked["model"], "choices": [choice]}))
    };
    Router::new()
        .route("/v1/health", routing::get(health))
        .route("/v1/load_lora_adapter", routing::post(load))
        .route("/v1/adapters", routing::get(adapters))
        .route("/v1/sample", routing::post(async || Json(sample)))
        .route("/v1/chat/completions", routing::post(chat))
        .with_state(Arc::clone(chats))
}

#[tokio::test]
async fn an_adapter_that_is_refused_where_chats_are_answered_is_lost_until_it_is_taken() {
    let chats = Chats::default();
    set(&chats, "away", StatusCode::SERVICE_UNAVAILABLE);
    let (address, _server) = serve(server(&chats)).await.unwrap();
    let config = format!(
        "mode: rl\nproxy: {{port: 0}}\nrl: {{remote_url: 'http://{address}'}}\njudge: {{kind: rules}}\ngate: {{enabled: false}}\n"
    );
    let home = TestHome::new(&config).unwrap();
    let log = TurnLog::open(&home.path().join("turns"), &TurnsConfig::default()).unwrap();
    let agent = "_default".parse().unwrap();
    let adapter = Some(ADAPTER.to_owned());
    log.set_serving(&agent, adapter).await.unwrap();
    log.close().await;
    let proxy = home.start().await.unwrap();
    let served = async |model: &str| {
        let reply = proxy.post("s", &["Hello"]).await?;
        Ok(reply.contains(&format!(r#""model":"{model}""#)))
    };
    // Nobody knows yet whether it can be loaded.
    until(async || served(ADAPTER).await).await.unwrap();
    let status = home.json(&["status", "--json"]).await.unwrap();
    assert_eq!(status["lost"], json!([]));

    set(&chats, "ready", StatusCode::BAD_REQUEST);
    until(async || served("base").await).await.unwrap();
    let status = home.json(&["status", "--json"]).await.unwrap();
    assert_eq!(status["lost"][0]["adapter"], ADAPTER);
    let why = status["lost"][0]["why"].to_string();
    assert!(why.contains("max_lora_rank"), "{why}");

    // It is started anew, with a larger rank.
    set(&chats, "away", StatusCode::SERVICE_UNAVAILABLE);
    // The first may go back to a look before that.
    until(async || Ok(lock(&chats).n_listed >= 2))
        .await
        .unwrap();
    set(&chats, "ready", StatusCode::OK);
    until(async || served(ADAPTER).await).await.unwrap();
    let status = home.json(&["status", "--json"]).await.unwrap();
    assert_eq!(status["lost"], json!([]));
    home.ask(&["stop"]).await.unwrap();
}
