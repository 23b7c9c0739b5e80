//! Tests of how upstreams have answered. Once, every chat was refused, or no upstream existed, and nothing reported it.

use super::harness::{CHAT, Harness, SetUp, completion, json_reply, post_chat};
use crate::Secret;

const READY: &[u8] = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn ready(harness: &Harness) -> String {
    let seen = harness.refused(READY).await;
    format!("{} {}", seen.status(), seen.text())
}

fn refusal(status: &str) -> String {
    json_reply("{}").replace("200 OK", status)
}

#[tokio::test]
async fn how_an_upstream_answers_is_counted_and_one_that_refuses_all_is_not_ready() {
    let mut set_up = SetUp::default();
    let llm = set_up.config.upstreams.entry("llm".into()).or_default();
    llm.keys = vec![Secret::from("sk-1")];
    let mut harness = Harness::with(set_up).await;
    assert_eq!(ready(&harness).await, r#"200 {"ready":true}"#);
    let request = post_chat(CHAT);
    harness
        .exchange(&request, &refusal("400 Bad Request"))
        .await;
    assert_eq!(
        ready(&harness).await,
        r#"200 {"ready":true}"#,
        "the caller's fault"
    );
    for status in ["401 Unauthorized", "502 Bad Gateway"] {
        harness.exchange(&request, &refusal(status)).await;
        let said = format!(r#"503 {{"ready":false,"reason":"llm: {status}"}}"#);
        assert_eq!(ready(&harness).await, said);
    }
    let it = harness.metrics.upstreams().remove("llm").unwrap();
    assert_eq!((it.n_good, it.n_failed, it.last_good_ms), (0, 3, None));
    assert_eq!(it.last_failure.as_deref(), Some("502 Bad Gateway"));
    assert!(it.last_failed_ms.is_some());
    harness
        .exchange(&request, &json_reply(&completion("x")))
        .await;
    assert_eq!(ready(&harness).await, r#"200 {"ready":true}"#);
    let it = harness.metrics.upstreams().remove("llm").unwrap();
    assert_eq!((it.n_good, it.n_failed), (1, 3));
    // Its server stops.
    let (mut client, exchange) = harness.ask(&request).await;
    drop(exchange);
    assert_eq!(client.read().await.status(), 502);
    assert!(ready(&harness).await.starts_with("503 "));
}

#[tokio::test]
async fn a_key_of_the_callers_that_is_refused_keeps_nobody_else_out() {
    let mut harness = Harness::start().await;
    harness
        .exchange(&post_chat(CHAT), &refusal("401 Unauthorized"))
        .await;
    assert_eq!(ready(&harness).await, r#"200 {"ready":true}"#);
    let it = harness.metrics.upstreams().remove("llm").unwrap();
    assert_eq!(it.last_failure.as_deref(), Some("401 Unauthorized"));
}

#[tokio::test]
async fn where_nobody_is_to_be_asked_it_is_not_ready() {
    let set_up = SetUp {
        no_llm: true,
        ..SetUp::default()
    };
    let mut set_up = set_up;
    set_up.config.routing.order = vec!["llm".to_owned()];
    let harness = Harness::with(set_up).await;
    insta::assert_snapshot!(ready(&harness).await, @r#"503 {"ready":false,"reason":"no upstream is configured: set llm.api_base, or a policy model"}"#);
}
