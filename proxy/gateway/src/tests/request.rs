//! Tests of requests: what reaches the upstream, byte for byte.

use metaclaw_test_kit::has;

use super::harness::{CHAT, Harness, SetUp, bare, get, json_reply, post, post_chat, says};
use crate::UpstreamConfig;

const WISH: (&str, &str) = ("_default/WISHES.md", "- Answer in one short sentence.\n");

#[tokio::test]
async fn a_request_passes_as_it_is_but_for_what_is_ours() {
    let mut harness = Harness::start().await;
    let body = r#"{ "turn_type":"main", "session_id":"s1", "model" : "mock-model","zeta":1.0e0,"messages":[{"role":"user","content":"caf\u00e9"}],"session_done":false }"#;
    let headers = "authorization: Bearer sk-callers\r\nX-Session-Id: s1\r\nX-Agent-Id: main\r\nX-Turn-Type: main\r\nTraceparent: 00-1-2-01\r\nx-stainless-lang: js\r\nsession_id: z:0\r\nUser-Agent: OpenAI/JS 7.15.0\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\ncontent-type: application/json\r\n";
    let request = post("/v1/chat/completions?api-version=1%2F2", headers, body);
    let (exchange, _) = harness.exchange(&request, &says("x")).await;
    let cut = r#"{ "session_id":"s1", "model" : "mock-model","zeta":1.0e0,"messages":[{"role":"user","content":"caf\u00e9"}] }"#;
    assert_eq!(exchange.body(), cut);
    let mut head: Vec<&str> = exchange.head.trim_end().lines().collect();
    head[1..].sort_unstable();
    let address = format!("host: {}", harness.upstream.address);
    let length = format!("content-length: {}", cut.len());
    assert_eq!(
        head,
        [
            "POST /v1/chat/completions?api-version=1%2F2 HTTP/1.1",
            "authorization: Bearer sk-callers",
            &length,
            "content-type: application/json",
            &address,
            "session_id: z:0",
            "traceparent: 00-1-2-01",
            "user-agent: OpenAI/JS 7.15.0",
            "x-session-id: s1",
            "x-stainless-lang: js",
        ]
    );
}

/// None of our parsers recurses with the nesting of its input: see docs/operating/limits.md.
#[tokio::test]
async fn a_request_nested_deeply_passes_as_it_came() {
    let mut harness = Harness::start().await;
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for body in [
        format!(r#"{{"messages":[{{"role":"user","content":{deep}}}]}}"#),
        format!(r#"{{"x":{deep},"messages":[{{"role":"user","content":[{{"text":{deep}}}]}}]}}"#),
        format!(r#"{{"prompt_cache_key":{deep},"messages":[{{"role":"user","x":{deep}}}]}}"#),
    ] {
        let exchange = harness.chat("", &body, "x").await;
        assert!(exchange.body() == body, "{}", exchange.body().len());
    }
}

#[tokio::test]
async fn lessons_stand_at_the_end_of_the_system_text_and_are_not_in_the_log_as_the_clients() {
    let mut harness = Harness::taught(&[WISH]).await;
    let body = r#"{"messages":[{"role":"system","content":"You are OpenClaw."},{"role":"user","content":"hi"}]}"#;
    let exchange = harness.chat("", body, "hello").await;
    let sent = exchange.body();
    let begin = r#"{"messages":[{"role":"system","content":"You are OpenClaw.\n\n"#;
    assert!(sent.starts_with(begin), "{sent}");
    has(sent, ["Answer in one short sentence."]);
    let end = r#""},{"role":"user","content":"hi"}]}"#;
    assert!(sent.ends_with(end), "{sent}");
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.request.messages[0].text(), "You are OpenClaw.");
    let block = turn.served.system_block.as_deref().unwrap();
    has(block, ["Answer in one short sentence."]);
    assert!(turn.served.wishes.is_some());
}

#[tokio::test]
async fn a_configured_key_and_model_replace_the_callers() {
    let mut harness = Harness::before(UpstreamConfig {
        keys: vec!["sk-ours".into()],
        model: Some("big-model".into()),
        ..UpstreamConfig::default()
    })
    .await;
    let headers = "authorization: Bearer sk-callers\r\nx-api-key: sk-callers\r\n";
    let exchange = harness.chat(headers, CHAT, "x").await;
    assert_eq!(exchange.header("authorization"), Some("Bearer sk-ours"));
    assert_eq!(exchange.header("x-api-key"), None);
    assert_eq!(exchange.body(), CHAT.replace("\"m\"", "\"big-model\""));
    assert_eq!(harness.log.wait(1).await[0].served.model, "big-model");
}

#[tokio::test]
async fn a_key_of_ours_is_never_shown_to_an_upstream() {
    let mut harness = Harness::with(SetUp::with_key("sk-proxy")).await;
    let headers = "authorization: Bearer sk-proxy\r\n";
    let exchange = harness.chat(headers, CHAT, "x").await;
    assert_eq!(exchange.header("authorization"), None);
    assert!(!exchange.head.contains("sk-proxy"));
}

#[tokio::test]
async fn other_routes_pass_unread_both_ways() {
    let mut harness = Harness::start().await;
    let body = "\u{0}not json\r\n";
    let reply = "HTTP/1.1 201 Created\r\ncontent-type: audio/mpeg\r\nconnection: close\r\ncontent-length: 3\r\nx-thing: y\r\n\r\n\x00\x01\x02";
    let headers = "content-type: text/plain\r\nx-agent-id: me\r\n";
    let request = post("/v1/audio/speech?x=1", headers, body);
    let (exchange, seen) = harness.exchange(&request, reply).await;
    assert_eq!(exchange.line(), "POST /v1/audio/speech?x=1 HTTP/1.1");
    assert_eq!(exchange.body(), body);
    for name in ["x-agent-id", "accept"] {
        assert_eq!(exchange.header(name), None);
    }
    assert_eq!(seen.status(), 201);
    assert_eq!(seen.body, b"\x00\x01\x02");
    assert_eq!(seen.header("x-thing"), Some("y"));

    let list = json_reply(r#"{"data":[]}"#);
    let (exchange, seen) = harness.exchange(&get("/v1/models", ""), &list).await;
    assert_eq!(exchange.line(), "GET /v1/models HTTP/1.1");
    for name in ["transfer-encoding", "content-length"] {
        assert_eq!(exchange.header(name), None);
    }
    assert_eq!(seen.text(), r#"{"data":[]}"#);
    assert!(harness.log.turns().is_empty());
}

#[tokio::test]
async fn what_is_asked_of_a_chat_route_otherwise_than_by_post_is_no_chat() {
    let mut harness = Harness::start().await;
    // OpenAI lists stored completions in this way.
    let list = get("/v1/chat/completions?limit=2", "");
    let reply = json_reply(r#"{"data":[]}"#);
    let (exchange, seen) = harness.exchange(&list, &reply).await;
    assert_eq!(exchange.line(), "GET /v1/chat/completions?limit=2 HTTP/1.1");
    assert_eq!(seen.text(), r#"{"data":[]}"#);
}

#[tokio::test]
async fn replies_without_a_body_keep_their_heads() {
    let mut harness = Harness::start().await;
    for (method, status, kept) in [
        ("HEAD", "200 OK", "content-length: 9\r\n"),
        ("GET", "304 Not Modified", "etag: \"x\"\r\n"),
        ("DELETE", "204 No Content", "x-a: b\r\n"),
        ("OPTIONS", "200 OK", "content-length: 0\r\n"),
    ] {
        let mut client = harness.sent(&bare(method, "/v1/files/f", "")).await;
        let reply = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{kept}\r\n");
        let exchange = harness.upstream.answer(&reply).await;
        assert_eq!(exchange.line(), format!("{method} /v1/files/f HTTP/1.1"));
        client.until(status).await;
        client.until(kept).await;
        // The connection continues without waiting for a body.
        client.send(&get("/v1/files/f", "")).await;
        harness.upstream.answer(&json_reply("{}")).await;
        client.until("{}").await;
    }
}

#[tokio::test]
async fn a_request_that_can_only_be_passed_on_is_passed_on() {
    let mut harness = Harness::start().await;
    let body = r#"{"messages":[{"role":"user","content":"x","weight":1e999}],"turn_type":"main"}"#;
    let (exchange, seen) = harness.exchange(&post_chat(body), &says("x")).await;
    assert_eq!(exchange.body(), body.replace(r#","turn_type":"main""#, ""));
    assert_eq!(seen.status(), 200);
    harness.until(|counts| counts.unread != 0).await;
    assert!(harness.log.turns().is_empty());
}
