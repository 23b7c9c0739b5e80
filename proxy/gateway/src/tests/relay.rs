//! Tests of replies: the same bytes, at the same time, with the same end.

use metaclaw_test_kit::has;
use std::time::Duration;

use metaclaw_chat::{Message, Span};
use metaclaw_turns::StreamEnd;

use super::harness::{
    CHAT, Harness, STREAM, SetUp, chunk, completion, delta, json_reply, post, post_chat,
};
use crate::UpstreamConfig;

#[tokio::test]
async fn a_stream_passes_byte_for_byte_with_comments_ids_and_odd_line_ends() {
    let mut harness = Harness::start().await;
    let events = [
        ": keep-alive\r\n\r\n",
        "event: delta\nid: 7\nretry: 10\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n",
        "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"is\"}}], \"unknown\":1.0e0}\r\r",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n",
    ];
    let chunks: String = events.iter().map(|event| chunk(event)).collect();
    let head = "HTTP/1.1 200 Fine\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: r1\r\ntransfer-encoding: chunked\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\n";
    let reply = format!("{head}{chunks}0\r\n\r\n");
    let (_, seen) = harness.exchange(&post_chat(CHAT), &reply).await;
    assert_eq!(seen.text(), events.concat());
    assert!(seen.is_whole);
    assert_eq!(seen.header("x-request-id").as_deref(), Some("r1"));
    assert_eq!(seen.head.matches("set-cookie").count(), 2);
    // The turn has neither [DONE] nor a finish reason, and nothing was invented.
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.meta.end, StreamEnd::Complete);
    assert_eq!(
        turn.reply.as_ref().map(Message::text).as_deref(),
        Some("Paris")
    );
    assert_eq!(
        (
            turn.meta.finish_reason.as_deref(),
            turn.meta.usage.unwrap().prompt_tokens
        ),
        (None, 3)
    );
}

#[tokio::test]
async fn no_byte_waits_for_a_later_one() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM.as_bytes()).await;
    client.until("text/event-stream").await;
    for text in ["one", "two", "three"] {
        // Even half an event is passed on at once.
        exchange.send(chunk(&delta(text)[..40]).as_bytes()).await;
        client.until(&delta(text)[..40]).await;
        exchange.send(chunk(&delta(text)[40..]).as_bytes()).await;
        client.until(&delta(text)[40..]).await;
    }
    exchange.send(b"0\r\n\r\n").await;
    assert!(client.read().await.is_whole);
}

#[tokio::test]
async fn a_cut_is_passed_on_as_a_cut() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange
        .send(format!("{STREAM}{}", chunk(&delta("Par"))).as_bytes())
        .await;
    client.until("Par").await;
    drop(exchange);
    let seen = client.read().await;
    assert_eq!((seen.text(), seen.is_whole), (delta("Par").as_str(), false));
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.meta.end, StreamEnd::Cut);
    assert_eq!(
        turn.reply.as_ref().map(Message::text).as_deref(),
        Some("Par")
    );

    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let reply = json_reply(&completion("Paris"));
    exchange.send(&reply.as_bytes()[..reply.len() - 9]).await;
    drop(exchange);
    assert!(!client.read().await.is_whole, "a lie about content-length");
    assert_eq!(harness.log.wait(2).await[1].meta.end, StreamEnd::Cut);
}

#[tokio::test]
async fn a_cut_of_an_upstream_of_http_1_0_is_a_cut_for_the_agent() {
    let mut set_up = SetUp::default();
    let idle = Some(Span::millis(50));
    set_up.config.upstreams = [(
        "llm".into(),
        UpstreamConfig {
            idle,
            ..UpstreamConfig::default()
        },
    )]
    .into();
    let mut harness = Harness::with(set_up).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let head = "HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    exchange
        .send(format!("{head}{}", delta("Par")).as_bytes())
        .await;
    // The upstream falls silent. Its reply would end with its connection.
    let seen = client.read().await;
    assert!(seen.head.starts_with("HTTP/1.1 200"), "{}", seen.head);
    assert_eq!((seen.text(), seen.is_whole), (delta("Par").as_str(), false));
}

#[tokio::test]
async fn an_error_keeps_its_status_its_body_and_its_retry_after() {
    let mut harness = Harness::start().await;
    let body = r#"{ "error" : {"message":"slow down","type":"x","code":"rate_limit_exceeded"} }"#;
    let reply = format!(
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\nx-ratelimit-remaining-requests: 0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (_, seen) = harness.exchange(&post_chat(CHAT), &reply).await;
    assert_eq!((seen.status(), seen.text()), (429, body));
    assert_eq!(seen.header("retry-after").as_deref(), Some("1"));
    assert_eq!(
        seen.header("x-ratelimit-remaining-requests").as_deref(),
        Some("0")
    );
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(
        (turn.meta.end, &turn.reply),
        (StreamEnd::UpstreamError { status: 429 }, &None)
    );
    assert!(
        harness.upstream.is_unasked(),
        "a retry that nobody asked for"
    );
}

#[tokio::test]
async fn when_the_agent_hangs_up_the_upstream_is_cancelled() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange
        .send(format!("{STREAM}{}", chunk(&delta("Par"))).as_bytes())
        .await;
    client.until("Par").await;
    drop(client);
    assert!(exchange.is_closed().await);
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::ClientGone);

    // Before the first byte there is nothing to log.
    let (client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    drop(client);
    assert!(exchange.is_closed().await);
    assert_eq!(harness.log.turns().len(), 1);
    while harness.metrics.counts().active_streams > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_agent_that_hangs_up_before_the_first_byte_cancels_the_upstream_too() {
    let mut harness = Harness::start().await;
    let (client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    drop(client);
    assert!(exchange.is_closed().await);
    while harness.metrics.counts().active_streams > 0 {
        tokio::task::yield_now().await;
    }
    assert!(harness.log.turns().is_empty(), "nothing was answered");
}

#[tokio::test]
async fn an_agent_that_hangs_up_after_the_last_word_has_a_complete_turn() {
    let mut harness = Harness::start().await;
    let stop = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange
        .send(format!("{STREAM}{}{}", chunk(&delta("Paris")), chunk(stop)).as_bytes())
        .await;
    client.until("finish_reason").await;
    drop(client);
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::Complete);

    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let done = chunk("data: [DONE]\n\n");
    exchange
        .send(format!("{STREAM}{}{done}", chunk(&delta("Paris"))).as_bytes())
        .await;
    client.until("[DONE]").await;
    // The log has it before the upstream has closed anything.
    assert_eq!(harness.log.wait(2).await[1].meta.end, StreamEnd::Complete);
    exchange.send(b"0\r\n\r\n").await;
    assert!(client.read().await.is_whole);
    assert_eq!(harness.log.turns().len(), 2);
}

#[tokio::test]
async fn an_error_inside_a_stream_is_no_complete_turn() {
    let mut harness = Harness::start().await;
    let error = chunk("data: {\"error\":{\"message\":\"overloaded\"}}\n\n");
    let reply = format!("{STREAM}{}{error}0\r\n\r\n", chunk(&delta("Par")));
    harness.exchange(&post_chat(CHAT), &reply).await;
    assert_eq!(
        harness.log.wait(1).await[0].meta.end,
        StreamEnd::UpstreamError { status: 200 }
    );
}

#[tokio::test]
async fn what_upstream_compresses_arrives_as_it_came() {
    let mut harness = Harness::start().await;
    let reply = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: br\r\ncontent-length: 4\r\n\r\n\x01\x02\x03\x04";
    let request = post(
        "/v1/chat/completions",
        "accept-encoding: gzip, br\r\n",
        CHAT,
    );
    let (exchange, seen) = harness.exchange(&request, reply).await;
    assert_eq!(
        exchange.header("accept-encoding").as_deref(),
        Some("gzip, br")
    );
    assert_eq!(seen.header("content-encoding").as_deref(), Some("br"));
    assert_eq!(seen.body, b"\x01\x02\x03\x04");
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::Overflowed);
    assert_eq!(harness.metrics.counts().undecodable, 1);
}

#[tokio::test]
async fn deadlines_are_those_of_the_configuration() {
    let mut set_up = SetUp::default();
    let llm = UpstreamConfig {
        first_byte: Some(Span::secs(1)),
        idle: Some(Span::secs(1)),
        ..UpstreamConfig::default()
    };
    set_up.config.upstreams.insert("llm".into(), llm);
    let mut harness = Harness::with(set_up).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let seen = client.read().await;
    assert_eq!(seen.status(), 504);
    has(seen.text(), ["sent no reply within 1 s"]);
    assert!(exchange.is_closed().await);

    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM.as_bytes()).await;
    // The whole reply takes longer than the allowed silence.
    let mut n_events = 0;
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_millis(1_500) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        exchange.send(chunk(": \n").as_bytes()).await;
        n_events += 1;
    }
    let seen = client.read().await;
    assert_eq!(
        (seen.text(), seen.is_whole),
        (": \n".repeat(n_events).as_str(), false)
    );
}
