//! Tests of requests: what reaches the upstream, byte for byte.

use super::harness::{CHAT, Harness, SetUp, completion, json_reply, post, post_chat};
use crate::{Secret, UpstreamConfig};

const WISH: (&str, &str) = ("_default/WISHES.md", "- Answer in one short sentence.\n");

#[tokio::test]
async fn a_request_passes_as_it_is_but_for_what_is_ours() {
    let mut harness = Harness::start().await;
    let body = r#"{ "turn_type":"main", "session_id":"s1", "model" : "mock-model","zeta":1.0e0,"messages":[{"role":"user","content":"caf\u00e9"}],"session_done":false }"#;
    let headers = "authorization: Bearer sk-callers\r\nX-Session-Id: s1\r\nX-Agent-Id: main\r\nX-Turn-Type: main\r\nTraceparent: 00-1-2-01\r\nx-stainless-lang: js\r\nsession_id: z:0\r\nUser-Agent: OpenAI/JS 7.15.0\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\ncontent-type: application/json\r\n";
    let request = post("/v1/chat/completions?api-version=1%2F2", headers, body);
    let (exchange, _) = harness
        .exchange(&request, &json_reply(&completion("x")))
        .await;
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
    let set_up = SetUp {
        lessons: vec![WISH],
        ..SetUp::default()
    };
    let mut harness = Harness::with(set_up).await;
    let body = r#"{"messages":[{"role":"system","content":"You are OpenClaw."},{"role":"user","content":"hi"}]}"#;
    let exchange = harness.chat("", body, "hello").await;
    let sent = exchange.body();
    assert!(
        sent.starts_with(r#"{"messages":[{"role":"system","content":"You are OpenClaw.\n\n"#),
        "{sent}"
    );
    assert!(sent.contains("Answer in one short sentence."), "{sent}");
    assert!(
        sent.ends_with(r#""},{"role":"user","content":"hi"}]}"#),
        "{sent}"
    );
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.request.messages[0].text(), "You are OpenClaw.");
    let block = turn.served.system_block.as_deref().unwrap();
    assert!(block.contains("Answer in one short sentence."), "{block}");
    assert!(turn.served.wishes.is_some());
}

#[tokio::test]
async fn a_configured_key_and_model_replace_the_callers() {
    let mut set_up = SetUp::default();
    let llm = UpstreamConfig {
        keys: vec![Secret::from("sk-ours")],
        model: Some("big-model".into()),
        ..UpstreamConfig::default()
    };
    set_up.config.upstreams.insert("llm".into(), llm);
    let mut harness = Harness::with(set_up).await;
    let exchange = harness
        .chat(
            "authorization: Bearer sk-callers\r\nx-api-key: sk-callers\r\n",
            CHAT,
            "x",
        )
        .await;
    assert_eq!(
        exchange.header("authorization").as_deref(),
        Some("Bearer sk-ours")
    );
    assert_eq!(exchange.header("x-api-key"), None);
    assert_eq!(exchange.body(), CHAT.replace("\"m\"", "\"big-model\""));
    assert_eq!(harness.log.wait(1).await[0].served.model, "big-model");
}

#[tokio::test]
async fn a_key_of_ours_is_never_shown_to_an_upstream() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.api_key = Some(Secret::from("sk-proxy"));
    let mut harness = Harness::with(set_up).await;
    let exchange = harness
        .chat("authorization: Bearer sk-proxy\r\n", CHAT, "x")
        .await;
    assert_eq!(exchange.header("authorization"), None);
    assert!(!exchange.head.contains("sk-proxy"));
}

#[tokio::test]
async fn other_routes_pass_unread_both_ways() {
    let mut harness = Harness::start().await;
    let body = "\u{0}not json\r\n";
    let reply = "HTTP/1.1 201 Created\r\ncontent-type: audio/mpeg\r\nconnection: close\r\ncontent-length: 3\r\nx-thing: y\r\n\r\n\x00\x01\x02";
    let request = post(
        "/v1/audio/speech?x=1",
        "content-type: text/plain\r\nx-agent-id: me\r\n",
        body,
    );
    let (exchange, seen) = harness.exchange(&request, reply).await;
    assert!(
        exchange
            .head
            .starts_with("POST /v1/audio/speech?x=1 HTTP/1.1\r\n"),
        "{}",
        exchange.head
    );
    assert_eq!(exchange.body(), body);
    assert_eq!(
        (exchange.header("x-agent-id"), exchange.header("accept")),
        (None, None)
    );
    assert_eq!(
        (seen.status(), seen.body.as_slice()),
        (201, &b"\x00\x01\x02"[..])
    );
    assert_eq!(seen.header("x-thing").as_deref(), Some("y"));

    let request = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let (exchange, seen) = harness
        .exchange(request, &json_reply(r#"{"data":[]}"#))
        .await;
    assert!(
        exchange.head.starts_with("GET /v1/models HTTP/1.1\r\n"),
        "{}",
        exchange.head
    );
    assert_eq!(
        (
            exchange.header("transfer-encoding"),
            exchange.header("content-length")
        ),
        (None, None)
    );
    assert_eq!(seen.text(), r#"{"data":[]}"#);
    assert!(harness.log.turns().is_empty());
}

#[tokio::test]
async fn what_is_asked_of_a_chat_route_otherwise_than_by_post_is_no_chat() {
    let mut harness = Harness::start().await;
    // OpenAI lists stored completions in this way.
    let list = b"GET /v1/chat/completions?limit=2 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let (exchange, seen) = harness.exchange(list, &json_reply(r#"{"data":[]}"#)).await;
    let line = "GET /v1/chat/completions?limit=2 HTTP/1.1\r\n";
    assert!(exchange.head.starts_with(line), "{}", exchange.head);
    assert_eq!(seen.text(), r#"{"data":[]}"#);
}

#[tokio::test]
async fn replies_without_a_body_keep_their_heads() {
    let mut harness = Harness::start().await;
    let ask = |method: &str| format!("{method} /v1/files/f HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for (method, status, kept) in [
        ("HEAD", "200 OK", "content-length: 9\r\n"),
        ("GET", "304 Not Modified", "etag: \"x\"\r\n"),
        ("DELETE", "204 No Content", "x-a: b\r\n"),
        ("OPTIONS", "200 OK", "content-length: 0\r\n"),
    ] {
        let (mut client, mut exchange) = harness.ask(ask(method).as_bytes()).await;
        let line = ask(method);
        assert!(exchange.head.starts_with(line.lines().next().unwrap()));
        let reply = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{kept}\r\n");
        exchange.send(reply.as_bytes()).await;
        client.until(status).await;
        client.until(kept).await;
        // The connection continues without waiting for a body.
        client.send(ask("GET").as_bytes()).await;
        let mut exchange = harness.upstream.next().await;
        exchange.answer("{}").await;
        client.until("{}").await;
    }
}

#[tokio::test]
async fn a_request_that_can_only_be_passed_on_is_passed_on() {
    let mut harness = Harness::start().await;
    let body = r#"{"messages":[{"role":"user","content":"x","weight":1e999}],"turn_type":"main"}"#;
    let (exchange, seen) = harness
        .exchange(&post_chat(body), &json_reply(&completion("x")))
        .await;
    assert_eq!(
        exchange.body(),
        r#"{"messages":[{"role":"user","content":"x","weight":1e999}]}"#
    );
    assert_eq!(seen.status(), 200);
    while harness.metrics.counts().unread == 0 {
        tokio::task::yield_now().await;
    }
    assert!(harness.log.turns().is_empty());
}
