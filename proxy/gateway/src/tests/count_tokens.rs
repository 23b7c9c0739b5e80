//! Tests of counting a conversation's tokens, for upstreams with and without such a route.

use serde_json::{Value, json};

use super::harness::{Harness, SetUp, Upstream, json_reply, post};
use crate::{Api, Endpoint};

const ROUTE: &str = "/v1/messages/count_tokens?beta=true";

fn conversation() -> String {
    let messages = json!([{ "role": "user", "content": "word ".repeat(400) }]);
    json!({ "model": "m", "messages": messages }).to_string()
}

async fn chat_only(no_llm: bool) -> Harness {
    let mut set_up = SetUp {
        no_llm,
        ..SetUp::default()
    };
    if !no_llm {
        let llm = set_up.config.upstreams.entry("llm".into()).or_default();
        llm.speaks = Some(vec![Api::Chat]);
    }
    Harness::with(set_up).await
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn reply(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_server_that_has_no_such_route_gets_no_conversation() {
    let mut harness = chat_only(false).await;
    let seen = harness.refused(&post(ROUTE, "", &conversation())).await;
    assert_eq!(seen.status(), 200);
    let n_tokens = value(seen.text())["input_tokens"].as_u64().unwrap();
    assert!((400..650).contains(&n_tokens), "{n_tokens}");
    let by = seen.header("x-metaclaw-token-count");
    assert_eq!(by.as_deref(), Some("estimate"));
    let seen = harness
        .refused(&post("/v1/messages/batches", "", "{}"))
        .await;
    assert_eq!(seen.status(), 404);
    assert_eq!(value(seen.text())["type"], "error", "{}", seen.text());
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn a_server_that_turns_out_to_have_none_is_not_asked_again() {
    let mut harness = Harness::start().await;
    let request = post(ROUTE, "", &conversation());
    let missing = reply("404 Not Found", r#"{"detail":"Not Found"}"#);
    let (exchange, seen) = harness.exchange(&request, &missing).await;
    assert!(
        exchange
            .head
            .starts_with("POST /v1/messages/count_tokens?beta=true ")
    );
    assert!(value(seen.text())["input_tokens"].is_u64());
    let seen = harness.refused(&request).await;
    assert!(value(seen.text())["input_tokens"].is_u64());
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn what_an_upstream_says_of_its_count_or_of_the_model_passes() {
    let mut harness = Harness::start().await;
    let request = post(ROUTE, "", &conversation());
    let no_model = r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#;
    let (_, seen) = harness
        .exchange(&request, &reply("404 Not Found", no_model))
        .await;
    assert_eq!((seen.status(), seen.text()), (404, no_model));
    let counted = json_reply(r#"{"input_tokens":7}"#);
    let (exchange, seen) = harness.exchange(&request, &counted).await;
    assert_eq!(exchange.body(), conversation());
    assert_eq!(seen.text(), r#"{"input_tokens":7}"#);
    assert_eq!(seen.header("x-metaclaw-token-count"), None);
}

#[tokio::test]
async fn the_policys_tokenizer_counts_where_the_policy_answers() {
    let harness = chat_only(true).await;
    let mut policy = Upstream::start(&harness.tasks).await;
    let url = format!("http://{}", policy.address);
    let endpoint = Endpoint::new(&url, None, "base").unwrap();
    harness.serving.set_policy(Some(endpoint));
    let mut ask = async |answer: &str| {
        let mut client = harness.sent(&post(ROUTE, "", &conversation())).await;
        let mut exchange = policy.next().await;
        exchange.send(answer.as_bytes()).await;
        let seen = client.read().await;
        let by = seen.header("x-metaclaw-token-count").unwrap();
        let n_tokens = value(seen.text())["input_tokens"].as_u64().unwrap();
        (exchange, n_tokens, by)
    };
    let counted = json_reply(r#"{"count":407,"max_model_len":8192,"tokens":[1]}"#);
    let (exchange, n_tokens, by) = ask(&counted).await;
    assert_eq!((n_tokens, by.as_str()), (407, "policy"));
    assert!(exchange.head.starts_with("POST /tokenize HTTP/1.1\r\n"));
    assert_eq!(value(exchange.body())["messages"][0]["role"], "user");
    // If a template refuses, or a server is broken, the count is an estimate.
    let (_, n_tokens, by) = ask(&reply("400 Bad Request", "{}")).await;
    assert!(n_tokens > 400 && by == "estimate", "{n_tokens} {by}");
}

#[tokio::test]
async fn what_is_no_conversation_is_refused_in_anthropics_words() {
    let harness = chat_only(false).await;
    for body in ["{}", "no", "[1]", r#"{"messages":"hi"}"#] {
        let seen = harness.refused(&post(ROUTE, "", body)).await;
        assert_eq!(seen.status(), 400, "{body}");
        let error = value(seen.text());
        assert_eq!(error["type"], "error", "{error}");
        assert_eq!(error["error"]["type"], "invalid_request_error", "{error}");
    }
}

#[tokio::test]
async fn memory_routes_are_answered_here_and_never_passed_on() {
    let mut harness = Harness::start().await;
    for path in ["/v1/memory/ingest", "/v1/memory/maintenance", "/v1/memory"] {
        let seen = harness.refused(&post(path, "", "{}")).await;
        assert_eq!(seen.status(), 503, "{path}");
        assert_eq!(value(seen.text())["detail"], "memory not enabled", "{path}");
    }
    assert!(harness.upstream.is_unasked());
    let (exchange, _) = harness
        .exchange(&post("/v1/memory_stores", "", "{}"), &json_reply("{}"))
        .await;
    assert!(exchange.head.starts_with("POST /v1/memory_stores "));
}
