//! A training server for which another server answers chats: that one has its own say about adapters.

use std::sync::{Arc, Mutex, PoisonError};

use metaclaw_turns::{TurnLog, TurnsConfig};
use serde_json::json;

use crate::harness::{Home, Reply, Server, training, until};

const ADAPTER: &str = "_default-0badcafe-000001";

/// The server that answers chats: how it is, and how it answers when it is to load an adapter.
type Chats = Arc<Mutex<(&'static str, u16)>>;

fn set(chats: &Chats, is: (&'static str, u16)) {
    *chats.lock().unwrap_or_else(PoisonError::into_inner) = is;
}

/// The training server itself has the adapter, and draws from it.
fn server(chats: &Chats) -> Server {
    let chats = Arc::clone(chats);
    Server::new(move |request| {
        let (is, loads) = *chats.lock().unwrap_or_else(PoisonError::into_inner);
        match request.path() {
            "/v1/health" => {
                let mut health = training::health("m");
                health["inference"] = json!({"url": "http://127.0.0.1:9", "state": is});
                Reply::json(health)
            }
            "/v1/load_lora_adapter" if loads != 200 => {
                let code = if loads == 400 { "adapter_refused" } else { "" };
                training::refusal(loads, "rank 32 is greater than max_lora_rank 16", code)
            }
            "/v1/adapters" => Reply::json(json!({"adapters": [{"name": ADAPTER, "loaded": true}]})),
            _ => training::answer(request),
        }
    })
}

#[tokio::test]
#[ignore = "needs 20 s, cargo xtask test --all runs it"]
async fn an_adapter_that_is_refused_where_chats_are_answered_is_lost_until_it_is_taken() {
    let chats = Chats::default();
    set(&chats, ("away", 503));
    let server = server(&chats);
    let address = server.address;
    let config = format!(
        "mode: rl\nproxy: {{port: 0}}\nrl: {{remote_url: 'http://{address}'}}\njudge: {{kind: rules}}\ngate: {{enabled: false}}\n"
    );
    let home = Home::new(&config);
    let log = TurnLog::open(&home.path().join("turns"), &TurnsConfig::default()).unwrap();
    let agent = "_default".parse().unwrap();
    let adapter = Some(ADAPTER.to_owned());
    log.set_serving(&agent, adapter).await.unwrap();
    log.close().await;
    let proxy = home.start().await;
    let served = async |model: &str| {
        let part = format!(r#""model":"{model}""#);
        until(
            model,
            async || proxy.post("s", &["Hello"]).await,
            |it| it.contains(&part),
        )
        .await;
    };
    // Nobody knows yet whether it can be loaded.
    served(ADAPTER).await;
    let status = home.json(&["status", "--json"]).await;
    assert_eq!(status["lost"], json!([]));

    set(&chats, ("ready", 400));
    served("base").await;
    let status = home.json(&["status", "--json"]).await;
    assert_eq!(status["lost"][0]["adapter"], ADAPTER);
    let why = status["lost"][0]["why"].to_string();
    assert!(why.contains("max_lora_rank"), "{why}");

    // It is started anew, with a larger rank.
    set(&chats, ("away", 503));
    // The first may go back to a look before that.
    let n_listed = || server.asked_of("/v1/adapters").len();
    let before = n_listed();
    until("two looks", async || n_listed(), |it| *it >= before + 2).await;
    set(&chats, ("ready", 200));
    served(ADAPTER).await;
    let status = home.json(&["status", "--json"]).await;
    assert_eq!(status["lost"], json!([]));
    home.ask(&["stop"]).await;
}
