//! Tests of how upstreams have answered. Once, every chat was refused, or no upstream existed, and nothing reported it.

use super::harness::{CHAT, Harness, SetUp, get, post_chat, reply, says};

async fn ready(harness: &Harness) -> String {
    let seen = harness.refused(&get("/readyz", "")).await;
    format!("{} {}", seen.status(), seen.text())
}

const IS_READY: &str = r#"200 {"ready":true}"#;

#[tokio::test]
async fn how_an_upstream_answers_is_counted_and_one_that_refuses_all_is_not_ready() {
    let mut set_up = SetUp::default();
    set_up.llm().keys = vec!["sk-1".into()];
    let mut harness = Harness::with(set_up).await;
    assert_eq!(ready(&harness).await, IS_READY);
    let request = post_chat(CHAT);
    let bad = reply("400 Bad Request", "", "{}");
    harness.exchange(&request, &bad).await;
    assert_eq!(ready(&harness).await, IS_READY, "the caller's fault");
    for status in ["401 Unauthorized", "502 Bad Gateway"] {
        harness.exchange(&request, &reply(status, "", "{}")).await;
        let said = format!(r#"503 {{"ready":false,"reason":"llm: {status}"}}"#);
        assert_eq!(ready(&harness).await, said);
    }
    let llm = harness.metrics.upstreams().remove("llm").unwrap();
    assert_eq!((llm.n_good, llm.n_failed, llm.last_good_ms), (0, 3, None));
    assert_eq!(llm.last_failure.as_deref(), Some("502 Bad Gateway"));
    assert!(llm.last_failed_ms.is_some());
    harness.exchange(&request, &says("x")).await;
    assert_eq!(ready(&harness).await, IS_READY);
    let llm = harness.metrics.upstreams().remove("llm").unwrap();
    assert_eq!((llm.n_good, llm.n_failed), (1, 3));
    // Its server stops.
    let (mut client, exchange) = harness.ask(&request).await;
    drop(exchange);
    assert_eq!(client.read().await.status(), 502);
    assert!(ready(&harness).await.starts_with("503 "));
}

#[tokio::test]
async fn a_key_of_the_callers_that_is_refused_keeps_nobody_else_out() {
    let mut harness = Harness::start().await;
    let unknown = reply("401 Unauthorized", "", "{}");
    harness.exchange(&post_chat(CHAT), &unknown).await;
    assert_eq!(ready(&harness).await, IS_READY);
    let llm = harness.metrics.upstreams().remove("llm").unwrap();
    assert_eq!(llm.last_failure.as_deref(), Some("401 Unauthorized"));
}

#[tokio::test]
async fn where_nobody_is_to_be_asked_it_is_not_ready() {
    let mut set_up = SetUp::without_llm();
    set_up.config.routing.order = vec!["llm".to_owned()];
    let harness = Harness::with(set_up).await;
    insta::assert_snapshot!(ready(&harness).await, @r#"503 {"ready":false,"reason":"no upstream is configured: set llm.api_base, or a policy model"}"#);
}
