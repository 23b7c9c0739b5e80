//! Tests in which the upstream fails.

use std::time::Duration;

use metaclaw_chat::Span;
use metaclaw_turns::StreamEnd;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;

use super::{Scene, said};
use crate::{
    UpstreamConfig,
    tests::harness::{
        CHAT, Exchange, Harness, STREAM, SetUp, chunk, completion, delta, json_reply, post_chat,
    },
};

/// Closes the connection with a reset, like a process that died.
fn reset(exchange: Exchange) {
    let stream = exchange.stream;
    let linger = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    linger.unwrap();
}

#[tokio::test]
async fn refuses() {
    let mut set_up = SetUp {
        no_llm: true,
        ..SetUp::default()
    };
    let llm = set_up.config.upstreams.entry("llm".into()).or_default();
    llm.url = format!("{}/v1", metaclaw_test_kit::gone());
    let scene = Scene::of(Harness::with(set_up).await);
    let seen = scene.harness.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.status(), 502);
    assert!(seen.text().contains("upstream llm"), "{}", seen.text());
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn resets_before_its_reply() {
    let mut scene = Scene::start().await;
    let (mut client, exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    reset(exchange);
    assert_eq!(client.read().await.status(), 502);
    assert!(scene.harness.upstream.is_unasked(), "asked twice");
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn resets_within_its_reply() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let event = chunk(&delta("Par"));
    exchange.send(format!("{STREAM}{event}").as_bytes()).await;
    client.until("Par").await;
    reset(exchange);
    let seen = client.read().await;
    assert_eq!((seen.text(), seen.is_whole), (&*delta("Par"), false));
    assert_eq!(scene.turn().await, (StreamEnd::Cut, Some("Par".into())));
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn stalls_before_its_reply() {
    let mut scene = Scene::of(Harness::with(impatient()).await);
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let seen = client.read().await;
    assert_eq!(seen.status(), 504);
    assert!(exchange.is_closed().await, "it is not waited for any more");
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn stalls_within_its_reply() {
    let mut scene = Scene::of(Harness::with(impatient()).await);
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let event = chunk(&delta("Par"));
    exchange.send(format!("{STREAM}{event}").as_bytes()).await;
    let seen = client.read().await;
    assert_eq!((seen.text(), seen.is_whole), (&*delta("Par"), false));
    assert!(exchange.is_closed().await);
    assert_eq!(scene.turn().await, (StreamEnd::Cut, Some("Par".into())));
    scene.leaves_nothing().await;
}

/// Makes a set-up with deadlines of 200 ms.
fn impatient() -> SetUp {
    let mut set_up = SetUp::default();
    let llm = UpstreamConfig {
        first_byte: Some(Span::millis(200)),
        idle: Some(Span::millis(200)),
        ..UpstreamConfig::default()
    };
    set_up.config.upstreams.insert("llm".into(), llm);
    set_up
}

#[tokio::test]
async fn cuts_within_an_event() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let half = &delta("is")[..40];
    let events = format!("{STREAM}{}{}", chunk(&delta("Par")), chunk(half));
    exchange.send(events.as_bytes()).await;
    drop(exchange);
    let seen = client.read().await;
    let all = format!("{}{half}", delta("Par"));
    assert_eq!((seen.text(), seen.is_whole), (&*all, false));
    assert_eq!(scene.turn().await, (StreamEnd::Cut, Some("Par".into())));
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn cuts_within_a_chunk() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let events = format!("{STREAM}{}400\r\ndata: ", chunk(&delta("Par")));
    exchange.send(events.as_bytes()).await;
    client.until("data: ").await;
    drop(exchange);
    let seen = client.read().await;
    assert!(!seen.is_whole && seen.text().starts_with(&delta("Par")));
    assert_eq!(scene.turn().await, (StreamEnd::Cut, Some("Par".into())));
    scene.leaves_nothing().await;
}

/// The upstream sends one byte at a time. The test of one byte per second is in `relay`.
#[tokio::test]
async fn sends_a_byte_at_a_time() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM.as_bytes()).await;
    let events = format!("{}{}data: [DONE]\n\n", delta("Par"), delta("is"));
    for byte in events.chars() {
        exchange.send(chunk(&byte.to_string()).as_bytes()).await;
    }
    exchange.send(b"0\r\n\r\n").await;
    let seen = client.read().await;
    assert_eq!((seen.text(), seen.is_whole), (&*events, true));
    let turn = (StreamEnd::Complete, Some("Paris".into()));
    assert_eq!(scene.turn().await, turn);
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn sends_a_gigabyte() {
    const EVENTS: usize = 16 << 10;
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let event = delta(&"x".repeat((64 << 10) - delta("").len()));
    let framed = chunk(&event);
    let sending = async {
        exchange.send(STREAM.as_bytes()).await;
        for _ in 0..EVENTS {
            exchange.send(framed.as_bytes()).await;
        }
        exchange.send(b"0\r\n\r\n").await;
    };
    let (n_bytes, ()) = tokio::join!(client.count(), sending);
    assert!(n_bytes >= (EVENTS * event.len()) as u64, "{n_bytes}");
    assert_eq!(scene.turn().await, (StreamEnd::Overflowed, None));
    assert_eq!(scene.harness.metrics.counts().overflowed, 1);
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn sends_less_than_it_announced() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let reply = json_reply(&completion("Paris"));
    exchange.send(&reply.as_bytes()[..reply.len() - 9]).await;
    drop(exchange);
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.is_whole), (200, false));
    assert_eq!(scene.turn().await.0, StreamEnd::Cut);
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn sends_more_than_it_announced() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let reply = json_reply(&completion("Paris")).replace("connection: close\r\n", "");
    let stray = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray";
    exchange.send(format!("{reply}{stray}").as_bytes()).await;
    let seen = client.read().await;
    assert_eq!((seen.text(), seen.is_whole), (&*completion("Paris"), true));
    assert!(exchange.is_closed().await, "it is not asked there again");
    // Additional bytes of the reply are discarded: the next request has its own connection.
    client.send(&post_chat(CHAT)).await;
    let mut exchange = scene.harness.upstream.next().await;
    exchange.say("London").await;
    assert_eq!(client.read().await.text(), completion("London"));
    let turns = scene.harness.log.wait(2).await;
    assert!(
        turns
            .iter()
            .all(|turn| turn.meta.end == StreamEnd::Complete)
    );
    drop((client, exchange));
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn answers_with_an_error() {
    let mut scene = Scene::start().await;
    let statuses = [429, 500, 400];
    for status in statuses {
        let body = r#"{ "error" :{"message":"no","type":"x","code":"context_length_exceeded"}}"#;
        let reply = json_reply(body).replace(
            "200 OK\r\n",
            &format!("{status} Said So\r\nretry-after: 7\r\nx-ratelimit-reset-tokens: 9s\r\n"),
        );
        let (_, seen) = scene.harness.exchange(&post_chat(CHAT), &reply).await;
        assert_eq!((seen.status(), seen.text()), (status, body));
        assert_eq!(seen.header("retry-after").as_deref(), Some("7"));
        let reset = seen.header("x-ratelimit-reset-tokens");
        assert_eq!(reset.as_deref(), Some("9s"));
        assert!(scene.harness.upstream.is_unasked(), "a retry unasked");
    }
    let turns = scene.harness.log.wait(statuses.len()).await;
    let held: Vec<_> = turns.iter().map(said).collect();
    let errors = statuses.map(|status| (StreamEnd::UpstreamError { status }, None));
    assert_eq!(held, errors);
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn says_what_is_no_http() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    exchange.send(b"+OK POP3 server ready\r\n\r\n").await;
    assert_eq!(client.read().await.status(), 502);
    assert!(exchange.is_closed().await);
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn says_more_after_the_end_mark() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let done = chunk("data: [DONE]\n\n");
    let events = format!("{STREAM}{}{done}", chunk(&delta("Paris")));
    exchange.send(events.as_bytes()).await;
    client.until("[DONE]").await;
    assert_eq!(
        scene.turn().await,
        (StreamEnd::Complete, Some("Paris".into()))
    );
    exchange
        .stream
        .write_all(chunk(": bye\n\n").as_bytes())
        .await
        .unwrap();
    drop(exchange);
    let seen = client.read().await;
    assert!(
        !seen.is_whole && seen.text().ends_with(": bye\n\n"),
        "{seen:?}"
    );
    assert_eq!(
        scene.harness.log.turns().len(),
        1,
        "its turn was written once"
    );
    scene.leaves_nothing().await;
}
