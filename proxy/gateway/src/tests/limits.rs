//! Tests of refusals, their wording, and the limits.

use std::io::ErrorKind;

use metaclaw_chat::{Size, Span};
use metaclaw_turns::StreamEnd;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use super::harness::{
    CHAT, CHATS, Client, END, Harness, MESSAGES, SOON, Seen, SetUp, chunk, delta, get, post,
    post_chat, says,
};
use crate::{Call, Secret, Service, ServiceError, Services, services::Answering};

/// Returns status and body without ports.
fn shown(seen: &Seen) -> String {
    let (status, retry) = seen.retry();
    let retry = retry.map_or_else(String::new, |s| format!(" retry-after: {s}"));
    let ports = regex::Regex::new(r"127\.0\.0\.1:\d+").unwrap();
    format!("{status}{retry} {}", ports.replace_all(seen.text(), "HOST"))
}

#[tokio::test]
async fn a_long_name_is_quoted_by_its_beginning() {
    let harness = Harness::start().await;
    let name = "x".repeat(1 << 20);
    let body = CHAT.replacen('{', &format!(r#"{{"session_id":"{name}","#), 1);
    let refused = harness.refused(&post_chat(&body)).await;
    assert_eq!(refused.status(), 400);
    let text = refused.text();
    assert!(text.contains(&name[..100]) && text.len() < 400, "{text}");
}

#[tokio::test]
async fn bad_requests_are_answered_in_words() {
    let harness = Harness::start().await;
    let refused = async |request: Vec<u8>| shown(&harness.refused(&request).await);
    insta::assert_snapshot!(refused(post_chat(r#"{"messages":"#)).await, @r#"400 {"error":{"message":"the request body is no JSON object: EOF while parsing a value at line 1 column 12","type":"invalid_request_error","param":null,"code":null}}"#);
    insta::assert_snapshot!(refused(post_chat(r#"{"model":"m"}"#)).await, @r#"400 {"error":{"message":"messages: is missing; it must be an array of at least one message","type":"invalid_request_error","param":"messages","code":null}}"#);
    insta::assert_snapshot!(refused(post_chat(r#"{"messages":[{"content":"x"}]}"#)).await, @r#"400 {"error":{"message":"messages[0]: a message must have a \"role\" that is a string","type":"invalid_request_error","param":"messages[0]","code":null}}"#);
    insta::assert_snapshot!(refused(post("/v1/messages", "", "{}")).await, @r#"400 {"type":"error","error":{"type":"invalid_request_error","message":"messages: is missing; it must be an array of at least one message"}}"#);
    insta::assert_snapshot!(refused(post("/v1/responses", "", r#"{"input":["hi"]}"#)).await, @r#"400 {"error":{"message":"input[0]: a message must be a JSON object, this one is a string","type":"invalid_request_error","param":"input[0]","code":null}}"#);
    insta::assert_snapshot!(refused(post(CHATS, "x-session-id: \x01\r\n", CHAT)).await, @r#"400 "#);
    insta::assert_snapshot!(refused(post(CHATS, "x-agent-id: ../x\r\n", CHAT)).await, @r#"400 {"error":{"message":"X-Agent-Id: agent name \"../x\" is not allowed: 1 to 64 of a-z A-Z 0-9 _ - ., beginning with a letter, a digit or _","type":"invalid_request_error","param":"X-Agent-Id","code":null}}"#);
    let mut latin1 = post(CHATS, "x-turn-type: ?\r\n", CHAT);
    let at = latin1.iter().position(|b| *b == b'?').unwrap();
    latin1[at] = 0xe9;
    insta::assert_snapshot!(refused(latin1).await, @r#"400 {"error":{"message":"x-turn-type: a header that is no UTF-8 text","type":"invalid_request_error","param":"x-turn-type","code":null}}"#);
    insta::assert_snapshot!(refused(get("/v1/feedback", "")).await, @r#"405 {"error":{"message":"/v1/feedback takes POST, not GET","type":"invalid_request_error","param":null,"code":null}}"#);
    insta::assert_snapshot!(refused(post("/rollout", "", "{}")).await, @r#"404 {"error":{"message":"POST /rollout is not served here: chats are POST /v1/chat/completions, and rollouts POST /v1/rollouts","type":"invalid_request_error","param":null,"code":null}}"#);
    insta::assert_snapshot!(refused(post("/chat/completions", "", CHAT)).await, @r#"404 {"error":{"message":"POST /chat/completions is not served here: chats are POST /v1/chat/completions, and rollouts POST /v1/rollouts","type":"invalid_request_error","param":null,"code":null}}"#);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_both_numbers() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.max_body = Size(1 << 20);
    let harness = Harness::with(set_up).await;
    let body = "x".repeat((1 << 20) + 1);
    let seen = harness.refused(&post_chat(&body)).await;
    insta::assert_snapshot!(shown(&seen), @r#"413 {"error":{"message":"the request body is larger than proxy.max_body, 1 MiB: it has 1048577 bytes","type":"invalid_request_error","param":null,"code":"request_too_large"}}"#);
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let seen = harness
        .refused(&format!("{head}{}{END}", chunk(&body)))
        .await;
    insta::assert_snapshot!(shown(&seen), @r#"413 {"error":{"message":"the request body is larger than proxy.max_body, 1 MiB","type":"invalid_request_error","param":null,"code":"request_too_large"}}"#);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_named() {
    let mut set_up = SetUp::without_llm();
    let llm = set_up.llm();
    llm.url = format!("{}/v1", metaclaw_test_kit::gone());
    let harness = Harness::with(set_up).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @r#"502 {"error":{"message":"upstream llm (HOST) cannot be reached: Connection refused (os error 111)","type":"server_error","param":null,"code":"upstream_unreachable"}}"#);
    let messages = post("/v1/messages", "", MESSAGES);
    insta::assert_snapshot!(shown(&harness.refused(&messages).await), @r#"502 {"type":"error","error":{"type":"api_error","message":"upstream llm (HOST) cannot be reached: Connection refused (os error 111)"}}"#);
    assert!(harness.log.turns().is_empty());
}

#[tokio::test]
async fn without_a_model_the_answer_says_so() {
    let mut set_up = SetUp::without_llm();
    set_up.config.routing.order = vec!["llm".into()];
    let harness = Harness::with(set_up).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @r#"503 {"error":{"message":"no upstream is configured: set llm.api_base, or a policy model","type":"server_error","param":null,"code":"no_upstream"}}"#);
}

#[tokio::test]
async fn beyond_the_streams_allowed_a_request_is_refused_at_once() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.max_streams = 1;
    let mut harness = Harness::with(set_up).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @r#"503 retry-after: 1 {"error":{"message":"1 requests are under way already, the most that proxy.max_streams allows","type":"server_error","param":null,"code":"too_many_streams"}}"#);
    exchange.say("x").await;
    client.read().await;
    drop(client);
    harness.until(|counts| counts.active_streams == 0).await;
    harness.chat("", CHAT, "x").await;
}

#[tokio::test]
async fn keys_open_for_their_agents_only() {
    let mut set_up = SetUp::default();
    let keys = r#"{"phone":{"key":"sk-phone","agents":["main","work"]}}"#;
    set_up.config.proxy.keys = serde_json::from_str(keys).unwrap();
    let mut harness = Harness::with(set_up).await;
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(CHAT)).await), @r#"401 {"error":{"message":"no key was given: send authorization: Bearer KEY, or x-api-key: KEY","type":"authentication_error","param":null,"code":"invalid_api_key"}}"#);
    let wrong = post("/v1/messages", "x-api-key: sk-phon\r\n", "{}");
    insta::assert_snapshot!(shown(&harness.refused(&wrong).await), @r#"401 {"type":"error","error":{"type":"authentication_error","message":"this key is not known here; the keys are proxy.api_key and proxy.keys"}}"#);
    let foreign = "authorization: Bearer sk-phone\r\nx-agent-id: other\r\n";
    let foreign = post(CHATS, foreign, CHAT);
    insta::assert_snapshot!(shown(&harness.refused(&foreign).await), @r#"403 {"error":{"message":"X-Agent-Id: this key may not speak for agent \"other\"","type":"permission_error","param":"X-Agent-Id","code":"foreign_agent"}}"#);
    for headers in [
        "authorization: Bearer sk-phone\r\n",
        "x-api-key: sk-phone\r\nx-agent-id: work\r\n",
        "authorization: Bearer of-another-tool\r\nx-api-key: sk-phone\r\n",
    ] {
        let exchange = harness.chat(headers, CHAT, "x").await;
        let shown = ["authorization", "x-api-key"].map(|name| exchange.header(name));
        assert_eq!(shown, [None, None], "neither goes upstream");
    }
    let agents = harness.turns(3, |turn| turn.agent.to_string()).await;
    assert_eq!(agents, ["main", "work", "main"]);
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
    let harness = Harness::with(SetUp {
        services: Some(services),
        ..SetUp::without_llm()
    })
    .await;
    let get = |path| get(path, "");
    let refused = async |request: Vec<u8>| shown(&harness.refused(&request).await);
    insta::assert_snapshot!(refused(get("/healthz")).await, @r#"200 {"ok":true}"#);
    insta::assert_snapshot!(refused(get("/readyz")).await, @r#"503 {"ready":false,"reason":"the adapter is being loaded"}"#);
    insta::assert_snapshot!(refused(post("/v1/feedback", "x-agent-id: a\r\n", r#"{"score":1}"#)).await, @r#"200 {"agent":"a","body":{"score":1}}"#);
    insta::assert_snapshot!(refused(post("/v1/feedback", "", "")).await, @r#"400 {"error":{"message":"turn: is missing","type":"invalid_request_error","param":null,"code":null}}"#);
    insta::assert_snapshot!(refused(post("/v1/admin/train_step", "", "{}")).await, @r#"401 {"error":{"message":"this call needs the admin token of run.json, as authorization: Bearer TOKEN","type":"authentication_error","param":null,"code":"invalid_api_key"}}"#);
    let headers = "authorization: Bearer admin-token\r\n";
    let admin = post("/v1/admin/train_step", headers, "{}");
    insta::assert_snapshot!(refused(admin).await, @r#"503 {"error":{"message":"/v1/admin/train_step is not served: nothing here learns","type":"server_error","param":null,"code":null}}"#);
}

#[tokio::test]
async fn an_order_to_stop_lets_replies_end_and_sees_their_turns_into_the_log() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.stream("Par").await;
    harness.log.hold();
    harness.stop.cancel();
    while TcpStream::connect(harness.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    exchange.end(&delta("is")).await;
    let seen = client.read().await;
    assert!(seen.is_whole && seen.text().ends_with(&delta("is")));
    harness.log.let_go(1);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    drop((exchange, client));
}

/// Waits until the gateway closes a connection, and returns how.
async fn close(client: &mut Client) -> ErrorKind {
    let end = timeout(30 * SOON, client.stream.read_u8()).await;
    end.expect("the end").unwrap_err().kind()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed() {
    let harness = Harness::start().await;
    close(&mut harness.client().await).await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_closed() {
    let harness = Harness::start().await;
    let mut client = harness.sent(&get("/healthz", "")).await;
    assert_eq!(client.read().await.status(), 200);
    tokio::time::pause();
    close(&mut client).await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_does_not_hold_the_end_up() {
    let harness = Harness::start().await;
    let mut silent = harness.client().await;
    // Another one was served, so the first has been accepted before.
    harness.refused(&post("/healthz", "", "")).await;
    harness.stop.cancel();
    let end = timeout(SOON, close(&mut silent)).await;
    let end = end.expect("the end, without the whole drain");
    assert_eq!(end, ErrorKind::UnexpectedEof);
}

/// Once, the log said of such a reply that its agent had disconnected.
#[tokio::test]
async fn a_reply_that_the_end_cuts_off_is_logged_as_cut() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.drain = Span::millis(1);
    let mut harness = Harness::with(set_up).await;
    let (mut client, _exchange) = harness.stream("Par").await;
    harness.stop.cancel();
    assert!(!client.read().await.is_whole);
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::Cut);
}

#[tokio::test]
async fn heads_have_a_bound_in_lines_and_in_bytes() {
    let harness = Harness::start().await;
    let many = "x-header: 1\r\n".repeat(1_025);
    let long = format!("x-long: {}\r\n", "x".repeat(70 << 10));
    for headers in [many, long] {
        let seen = harness.refused(&post("/v1/models", &headers, "")).await;
        assert_eq!(seen.status(), 431);
    }
    assert_eq!(harness.metrics.counts().requests, 0, "they are no requests");
    let agents = format!("x-header: {}\r\n", "y".repeat(900)).repeat(60);
    let seen = harness.refused(&post("/healthz", &agents, "")).await;
    assert_eq!(seen.status(), 200, "54 KB in 60 lines");
    let lines = "x-header: 1\r\n".repeat(1_000);
    let seen = harness.refused(&post("/healthz", &lines, "")).await;
    assert_eq!(seen.status(), 200, "1,000 lines");
}

#[tokio::test]
async fn request_bodies_share_a_memory_and_are_told_when_it_is_used_up() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.max_body = Size(1 << 20);
    set_up.config.proxy.body_memory = Size(1_280 << 10);
    let mut harness = Harness::with(set_up).await;
    // A client that announces the whole body and sends little takes little memory.
    let body = format!("{}{}", CHAT, " ".repeat((1 << 20) - CHAT.len()));
    let mut announcer = harness.client().await;
    announcer.send(&post_chat(&body)[..300]).await;
    harness.chat("", CHAT, "x").await;
    // A client that sends nearly all of it leaves no room for another one.
    announcer.send(&post_chat(&body)[300..1_000_000]).await;
    harness.until(|counts| counts.body_bytes >= 900_000).await;
    let half = format!("{}{}", CHAT, " ".repeat(500_000));
    insta::assert_snapshot!(shown(&harness.refused(&post_chat(&half)).await), @r#"503 retry-after: 1 {"error":{"message":"no room for this request body just now: all together take at most proxy.body_memory, 1280 KiB","type":"server_error","param":null,"code":"too_many_bytes"}}"#);
    assert!(harness.metrics.counts().body_bytes <= 1_280 << 10);
    harness.chat("", CHAT, "a small one fits").await;
    announcer.send(&post_chat(&body)[1_000_000..]).await;
    harness.upstream.answer(&says("x")).await;
    announcer.read().await;
    harness.log.wait(3).await;
    harness.until(|counts| counts.body_bytes == 0).await;
    let (exchange, _) = harness.exchange(&post_chat(&half), &says("x")).await;
    assert_eq!(exchange.body(), half);
}
