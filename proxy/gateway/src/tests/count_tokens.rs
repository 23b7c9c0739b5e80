//! Tests of counting a conversation's tokens, for upstreams with and without such a route.

use serde_json::json;

use super::harness::{Harness, NO_ROUTE, Seen, SetUp, json_reply, post, reply};
use crate::Api;

const ROUTE: &str = "/v1/messages/count_tokens?beta=true";

fn conversation() -> String {
    let messages = json!([{ "role": "user", "content": "word ".repeat(400) }]);
    json!({ "model": "m", "messages": messages }).to_string()
}

async fn chat_only() -> Harness {
    let mut set_up = SetUp::default();
    set_up.llm().speaks = Some(vec![Api::Chat]);
    Harness::with(set_up).await
}

/// Returns the number of tokens, and who counted.
fn counted(seen: &Seen) -> (u64, Option<&str>) {
    let n_tokens = seen.json()["input_tokens"].as_u64().unwrap();
    (n_tokens, seen.header("x-metaclaw-token-count"))
}

#[tokio::test]
async fn a_server_that_has_no_such_route_gets_no_conversation() {
    let mut harness = chat_only().await;
    let seen = harness.refused(&post(ROUTE, "", &conversation())).await;
    assert_eq!(seen.status(), 200);
    let (n_tokens, by) = counted(&seen);
    assert!((400..650).contains(&n_tokens), "{n_tokens}");
    assert_eq!(by, Some("estimate"));
    let batches = post("/v1/messages/batches", "", "{}");
    let seen = harness.refused(&batches).await;
    assert_eq!(seen.status(), 404);
    assert_eq!(seen.json()["type"], "error", "{}", seen.text());
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn a_server_that_turns_out_to_have_none_is_not_asked_again() {
    let mut harness = Harness::start().await;
    let request = post(ROUTE, "", &conversation());
    let (exchange, seen) = harness.exchange(&request, NO_ROUTE).await;
    assert_eq!(exchange.path(), ROUTE);
    counted(&seen);
    counted(&harness.refused(&request).await);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn what_an_upstream_says_of_its_count_or_of_the_model_passes() {
    let mut harness = Harness::start().await;
    let request = post(ROUTE, "", &conversation());
    let no_model = r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#;
    let missing = reply("404 Not Found", "", no_model);
    let (_, seen) = harness.exchange(&request, &missing).await;
    assert_eq!((seen.status(), seen.text()), (404, no_model));
    let seven = json_reply(r#"{"input_tokens":7}"#);
    let (exchange, seen) = harness.exchange(&request, &seven).await;
    assert_eq!(exchange.body(), conversation());
    assert_eq!(counted(&seen), (7, None));
}

#[tokio::test]
async fn the_policys_tokenizer_counts_where_the_policy_answers() {
    let harness = Harness::with(SetUp::without_llm()).await;
    let mut policy = harness.policy(|endpoint| endpoint).await;
    let mut ask = async |answer: &str| {
        let mut client = harness.sent(&post(ROUTE, "", &conversation())).await;
        let exchange = policy.answer(answer).await;
        (exchange, client.read().await)
    };
    let answer = json_reply(r#"{"count":407,"max_model_len":8192,"tokens":[1]}"#);
    let (exchange, seen) = ask(&answer).await;
    assert_eq!(counted(&seen), (407, Some("policy")));
    assert_eq!(exchange.line(), "POST /tokenize HTTP/1.1");
    assert_eq!(exchange.json()["messages"][0]["role"], "user");
    // If a template refuses, or a server is broken, the count is an estimate.
    let (_, seen) = ask(&reply("400 Bad Request", "", "{}")).await;
    let (n_tokens, by) = counted(&seen);
    assert!(n_tokens > 400, "{n_tokens}");
    assert_eq!(by, Some("estimate"));
}

#[tokio::test]
async fn what_is_no_conversation_is_refused_in_anthropics_words() {
    let harness = chat_only().await;
    for body in ["{}", "no", "[1]", r#"{"messages":"hi"}"#] {
        let seen = harness.refused(&post(ROUTE, "", body)).await;
        assert_eq!(seen.status(), 400, "{body}");
        let error = seen.json();
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
        assert_eq!(seen.json()["detail"], "memory not enabled", "{path}");
    }
    assert!(harness.upstream.is_unasked());
    let stores = post("/v1/memory_stores", "", "{}");
    let (exchange, _) = harness.exchange(&stores, &json_reply("{}")).await;
    assert_eq!(exchange.path(), "/v1/memory_stores");
}
