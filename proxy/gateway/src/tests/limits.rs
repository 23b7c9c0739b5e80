//! What is refused, in which words, and what happens at the limits.

use metaclaw_chat::Size;
use serde_json::{Value, json};

use super::harness::{
    CHAT, Harness, STREAM, Seen, SetUp, chunk, completion, delta, json_reply, post, post_chat,
};
use crate::{Call, Secret, Service, ServiceError, Services, services::Answering};

/// Status and body, with ports left out.
fn shown(seen: &Seen) -> String {
    let status = seen.status();
    let retry = seen
        .header("retry-after")
        .map_or_else(String::new, |s| format!(" retry-after: {s}"));
    let ports = regex::Regex::new(r"127\.0\.0\.1:\d+").unwrap();
    format!("{status}{retry} {}", ports.replace_all(seen.text(), "HOST"))
}

#[tokio::test]
async fn bad_requests_are_answered_in_words() {
    let harness = Harness::start().await;
    let refused = async |request: Vec<u8>| shown(&harness.refused(&request).await);
    insta::assert_snapshot!(refused(post_chat(r#"{"messages":"#)).await, @"");
    insta::assert_snapshot!(refused(post_chat(r#"{"model":"m"}"#)).await, @"");
    insta::assert_snapshot!(refused(post_chat(r#"{"messages":[{"content":"x"}]}"#)).await, @"");
    insta::assert_snapshot!(refused(post("/v1/chat/completions", "x-session-id: \x01\r\n", CHAT)).await, @"");
    insta::assert_snapshot!(refused(post("/v1/chat/completions", "x-agent-id: ../x\r\n", CHAT)).await, @"");
    insta::assert_snapshot!(refused(b"GET /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()).await, @"");
    insta::assert_snapshot!(refused(post("/chat/completions", "", CHAT)).await, @"");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_both_numbers() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.max_body = Size(1 << 20);
    let harness = Harness::with(set_up).await;
    let body = "x".repeat((1 << 20) + 1);
    let seen = harness.refused(&post_chat(&body)).await;
    insta::assert_snapshot!(shown(&seen), @"");
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let seen = harness
        .refused(format!("{head}{}0\r\n\r\n", chunk(&body)).as_bytes())
        .await;
    insta::assert_snapshot!(shown(&seen), @"");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_named() {
    let mut set_up = SetUp::default();
    set_up.no_llm = true;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let llm = set_up.config.upstreams.entry("llm".into()).or_default();
    llm.url = format!("http://{}/v1", gone.local_addr().unwrap());
    drop(gone);
    let harness = Harness::with(set_up).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @"");
    let messages = post("/v1/messages", "", "{}");
    insta::assert_snapshot!(shown(&harness.refused(&messages).await), @"");
    assert!(harness.log.turns().is_empty());
}

#[tokio::test]
async fn without_a_model_the_answer_says_so() {
    let mut set_up = SetUp::default();
    set_up.no_llm = true;
    set_up.config.routing.order = vec!["llm".into()];
    let harness = Harness::with(set_up).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @"");
}

#[tokio::test]
async fn beyond_the_streams_allowed_a_request_is_refused_at_once() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.max_streams = 1;
    let mut harness = Harness::with(set_up).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @"");
    exchange.send(json_reply(&completion("x")).as_bytes()).await;
    client.read().await;
    drop(client);
    while harness.metrics.counts().active_streams > 0 {
        tokio::task::yield_now().await;
    }
    harness.chat("", CHAT, "x").await;
}

#[tokio::test]
async fn keys_open_for_their_agents_only() {
    let mut set_up = SetUp::default();
    let keys = r#"{"phone":{"key":"sk-phone","agents":["main","work"]}}"#;
    set_up.config.proxy.keys = serde_json::from_str(keys).unwrap();
    let mut harness = Harness::with(set_up).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @"");
    let wrong = post("/v1/messages", "x-api-key: sk-phon\r\n", "{}");
    insta::assert_snapshot!(shown(&harness.refused(&wrong).await), @"");
    let foreign = "authorization: Bearer sk-phone\r\nx-agent-id: other\r\n";
    let foreign = post("/v1/chat/completions", foreign, CHAT);
    insta::assert_snapshot!(shown(&harness.refused(&foreign).await), @"");
    harness
        .chat("authorization: Bearer sk-phone\r\n", CHAT, "x")
        .await;
    harness
        .chat("x-api-key: sk-phone\r\nx-agent-id: work\r\n", CHAT, "x")
        .await;
    let agents: Vec<_> = harness
        .log
        .wait(2)
        .await
        .into_iter()
        .map(|turn| turn.agent.to_string())
        .collect();
    assert_eq!(agents, ["main", "work"]);
}

struct Echo;

impl Service for Echo {
    fn call(&self, call: Call) -> Answering<'_> {
        Box::pin(async move {
            if call.body == Value::Null {
                let status = http::StatusCode::BAD_REQUEST;
                let message = "turn: is missing".to_owned();
                return Err(ServiceError { status, message });
            }
            Ok(json!({ "agent": call.agent, "body": call.body }))
        })
    }
}

#[tokio::test]
async fn services_are_served_to_those_who_may() {
    let services = Services {
        feedback: Some(std::sync::Arc::new(Echo)),
        ready: std::sync::Arc::new(|| Err("the adapter is being loaded".to_owned())),
        ..Services::none(Secret::from("admin-token"))
    };
    let set_up = SetUp {
        services: Some(services),
        ..SetUp::default()
    };
    let harness = Harness::with(set_up).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes();
    let refused = async |request: Vec<u8>| shown(&harness.refused(&request).await);
    insta::assert_snapshot!(refused(get("/healthz")).await, @"");
    insta::assert_snapshot!(refused(get("/readyz")).await, @"");
    insta::assert_snapshot!(refused(post("/v1/feedback", "x-agent-id: a\r\n", r#"{"score":1}"#)).await, @"");
    insta::assert_snapshot!(refused(post("/v1/feedback", "", "")).await, @"");
    insta::assert_snapshot!(refused(post("/v1/admin/train_step", "", "{}")).await, @"");
    let admin = post(
        "/v1/admin/train_step",
        "authorization: Bearer admin-token\r\n",
        "{}",
    );
    insta::assert_snapshot!(refused(admin).await, @"");
}

#[tokio::test]
async fn an_order_to_stop_lets_replies_end_and_sees_their_turns_into_the_log() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange
        .send(format!("{STREAM}{}", chunk(&delta("Par"))).as_bytes())
        .await;
    client.until("Par").await;
    harness.log.hold();
    harness.stop.cancel();
    while tokio::net::TcpStream::connect(harness.address)
        .await
        .is_ok()
    {
        tokio::task::yield_now().await;
    }
    exchange
        .send(format!("{}0\r\n\r\n", chunk(&delta("is"))).as_bytes())
        .await;
    let seen = client.read().await;
    assert!(seen.is_whole && seen.text().ends_with(&delta("is")));
    harness.log.let_go(1);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    drop((exchange, client));
}
