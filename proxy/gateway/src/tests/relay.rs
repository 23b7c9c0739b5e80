//! Tests of replies: the same bytes, at the same time, with the same end. What happens if one side fails is in `faults`.

use std::time::Duration;

use metaclaw_chat::Span;
use metaclaw_test_kit::has;
use metaclaw_turns::StreamEnd;

use super::harness::{
    CHAT, CHATS, DONE, END, Harness, STREAM, chunk, delta, post, post_chat, streamed,
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
    let chunks = events.map(chunk).concat();
    let head = "HTTP/1.1 200 Fine\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: r1\r\ntransfer-encoding: chunked\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\n";
    let reply = format!("{head}{chunks}{END}");
    let (_, seen) = harness.exchange(&post_chat(CHAT), &reply).await;
    assert_eq!(seen.content(), (&*events.concat(), true));
    assert_eq!(seen.header("x-request-id"), Some("r1"));
    assert_eq!(seen.head.matches("set-cookie").count(), 2);
    // The turn has neither [DONE] nor a finish reason, and nothing was invented.
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.meta.end, StreamEnd::Complete);
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    assert_eq!(turn.meta.finish_reason, None);
    assert_eq!(turn.meta.usage.unwrap().prompt_tokens, 3);
}

#[tokio::test]
async fn no_byte_waits_for_a_later_one() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM).await;
    client.until("text/event-stream").await;
    for text in ["one", "two", "three"] {
        // Even half an event is passed on at once.
        let event = delta(text);
        for half in [&event[..40], &event[40..]] {
            exchange.send(&chunk(half)).await;
            client.until(half).await;
        }
    }
    exchange.send(END).await;
    assert!(client.read().await.is_whole);
}

#[tokio::test]
async fn a_cut_of_an_upstream_of_http_1_0_is_a_cut_for_the_agent() {
    let mut harness = Harness::before(UpstreamConfig {
        idle: Some(Span::millis(50)),
        ..UpstreamConfig::default()
    })
    .await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let head = "HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    exchange.send(&format!("{head}{}", delta("Par"))).await;
    // The upstream falls silent. Its reply would end with its connection.
    let seen = client.read().await;
    assert!(seen.head.starts_with("HTTP/1.1 200"), "{}", seen.head);
    assert_eq!(seen.content(), (&*delta("Par"), false));
}

#[tokio::test]
async fn the_log_has_a_turn_before_the_upstream_has_closed_anything() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.stream("Paris").await;
    exchange.send(&chunk(DONE)).await;
    client.until("[DONE]").await;
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::Complete);
    exchange.send(END).await;
    assert!(client.read().await.is_whole);
    assert_eq!(harness.log.turns().len(), 1);
}

#[tokio::test]
async fn an_error_inside_a_stream_is_no_complete_turn() {
    let mut harness = Harness::start().await;
    let error = "data: {\"error\":{\"message\":\"overloaded\"}}\n\n";
    let reply = streamed(&format!("{}{error}", delta("Par")));
    harness.exchange(&post_chat(CHAT), &reply).await;
    let end = harness.log.wait(1).await[0].meta.end;
    assert_eq!(end, StreamEnd::UpstreamError { status: 200 });
}

#[tokio::test]
async fn what_upstream_compresses_arrives_as_it_came() {
    let mut harness = Harness::start().await;
    let reply = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: br\r\ncontent-length: 4\r\n\r\n\x01\x02\x03\x04";
    let request = post(CHATS, "accept-encoding: gzip, br\r\n", CHAT);
    let (exchange, seen) = harness.exchange(&request, reply).await;
    assert_eq!(exchange.header("accept-encoding"), Some("gzip, br"));
    assert_eq!(seen.header("content-encoding"), Some("br"));
    assert_eq!(seen.body, b"\x01\x02\x03\x04");
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::Overflowed);
    assert_eq!(harness.metrics.counts().undecodable, 1);
}

#[tokio::test]
async fn deadlines_are_those_of_the_configuration() {
    let mut harness = Harness::before(UpstreamConfig {
        first_byte: Some(Span::secs(1)),
        idle: Some(Span::secs(1)),
        ..UpstreamConfig::default()
    })
    .await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let seen = client.read().await;
    assert_eq!(seen.status(), 504);
    has(seen.text(), ["sent no reply within 1 s"]);
    assert!(exchange.is_closed().await);

    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM).await;
    // The whole reply takes longer than the allowed silence.
    let mut n_events = 0;
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_millis(1_500) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        exchange.send(&chunk(": \n")).await;
        n_events += 1;
    }
    let all = ": \n".repeat(n_events);
    assert_eq!(client.read().await.content(), (&*all, false));
}
