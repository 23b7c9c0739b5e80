//! Tests of `openrouter.*`: what a request to OpenRouter asks for beside the chat.

use super::harness::{CHAT, Harness, SetUp, post};
use crate::{Api, DataPolicy, OpenRouterConfig, OpenRouterRoute, UpstreamConfig};

fn openrouter() -> OpenRouterConfig {
    OpenRouterConfig {
        app_name: Some("Mine".to_owned()),
        app_url: Some("https://mine.example".to_owned()),
        route: Some(OpenRouterRoute::Throughput),
        fallback_models: vec!["b/next".to_owned()],
        data_policy: Some(DataPolicy::Deny),
    }
}

async fn before(url: &str, speaks: Option<Vec<Api>>) -> Harness {
    let mut set_up = SetUp::default();
    set_up.config.openrouter = openrouter();
    let llm = UpstreamConfig {
        url: url.to_owned(),
        speaks,
        ..UpstreamConfig::default()
    };
    set_up.config.upstreams.insert("llm".into(), llm);
    Harness::with(set_up).await
}

const ADDED: &str =
    r#"{"provider":{"sort":"throughput","data_collection":"deny"},"models":["m","b/next"],"#;

#[tokio::test]
async fn a_request_to_openrouter_says_how_to_route_and_who_asks() {
    let mut harness = before("http://openrouter.ai/api/v1", None).await;
    let exchange = harness.chat("", CHAT, "x").await;
    let line = "POST http://openrouter.ai/api/v1/chat/completions HTTP/1.1";
    assert!(exchange.head.starts_with(line), "{}", exchange.head);
    assert_eq!(exchange.body(), format!("{ADDED}{}", &CHAT[1..]));
    let header = |name| exchange.header(name);
    assert_eq!(header("x-title").as_deref(), Some("Mine"));
    assert_eq!(
        header("http-referer").as_deref(),
        Some("https://mine.example")
    );
    let headers = "x-title: Theirs\r\n";
    let exchange = harness.chat(headers, CHAT, "x").await;
    assert_eq!(exchange.header("x-title").as_deref(), Some("Theirs"));
}

#[tokio::test]
async fn a_request_to_anybody_else_says_nothing_of_it() {
    let mut harness = before("", None).await;
    let exchange = harness.chat("", CHAT, "x").await;
    assert_eq!(exchange.body(), CHAT);
    assert_eq!(exchange.header("x-title"), None);
}

#[tokio::test]
async fn a_translated_request_says_it_too() {
    let mut harness = before("http://openrouter.ai/api", Some(vec![Api::Chat])).await;
    let messages = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hello"}]}"#;
    let request = post("/v1/messages", "", messages);
    let (_, exchange) = harness.ask(&request).await;
    let sent: serde_json::Value = serde_json::from_slice(&exchange.body).unwrap();
    assert_eq!(sent["provider"]["data_collection"], "deny");
    assert_eq!(sent["models"][1], "b/next");
}
