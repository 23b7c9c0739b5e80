//! Tests of `openrouter.*`: what a request to OpenRouter asks for beside the chat.

use super::harness::{CHAT, Harness, MESSAGES, SetUp, post};
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
    let mut set_up = SetUp::before(UpstreamConfig {
        url: url.to_owned(),
        speaks,
        ..UpstreamConfig::default()
    });
    set_up.config.openrouter = openrouter();
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
    assert_eq!(exchange.header("x-title"), Some("Mine"));
    let referer = exchange.header("http-referer");
    assert_eq!(referer, Some("https://mine.example"));
    let headers = "x-title: Theirs\r\n";
    let exchange = harness.chat(headers, CHAT, "x").await;
    assert_eq!(exchange.header("x-title"), Some("Theirs"));
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
    let request = post("/v1/messages", "", MESSAGES);
    let (_, exchange) = harness.ask(&request).await;
    let sent = exchange.json();
    assert_eq!(sent["provider"]["data_collection"], "deny");
    assert_eq!(sent["models"][1], "b/next");
}
