//! Tests in which the upstream fails.

use std::time::Duration;

use metaclaw_chat::Span;
use metaclaw_test_kit::has;
use metaclaw_turns::StreamEnd;
use socket2::SockRef;

use super::{Scene, said};
use crate::{
    UpstreamConfig,
    tests::harness::{
        CHAT, DONE, END, Exchange, STREAM, SetUp, begun, chunk, completion, delta, post_chat,
        reply, says,
    },
};

/// How a reply ends that is not whole.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    Closed,
    Reset,
    Silent,
}

/// Closes the connection with a reset, like a process that died.
fn reset(exchange: Exchange) {
    let linger = SockRef::from(&exchange.stream).set_linger(Some(Duration::ZERO));
    linger.unwrap();
    drop(exchange);
}

/// Makes a set-up with deadlines of 200 ms.
fn impatient() -> SetUp {
    SetUp::before(UpstreamConfig {
        first_byte: Some(Span::millis(200)),
        idle: Some(Span::millis(200)),
        ..UpstreamConfig::default()
    })
}

#[tokio::test]
async fn refuses() {
    let mut set_up = SetUp::without_llm();
    set_up.llm().url = format!("{}/v1", metaclaw_test_kit::gone());
    let scene = Scene::with(set_up).await;
    let seen = scene.harness.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.status(), 502);
    has(seen.text(), ["upstream llm"]);
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn sends_no_reply() {
    for (ends, status) in [(Ends::Reset, 502), (Ends::Closed, 502), (Ends::Silent, 504)] {
        let set_up = if ends == Ends::Silent {
            impatient()
        } else {
            SetUp::default()
        };
        let mut scene = Scene::with(set_up).await;
        let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
        match ends {
            Ends::Reset => reset(exchange),
            Ends::Closed => {
                exchange.send("+OK POP3 server ready\r\n\r\n").await;
                assert!(exchange.is_closed().await);
            }
            Ends::Silent => assert!(exchange.is_closed().await, "it is not waited for any more"),
        }
        assert_eq!(client.read().await.status(), status, "{ends:?}");
        assert!(scene.harness.upstream.is_unasked(), "asked twice");
        assert!(scene.harness.log.turns().is_empty());
        scene.leaves_nothing().await;
    }
}

#[tokio::test]
async fn ends_within_its_reply() {
    let half = &delta("is")[..40];
    let in_event = format!("{}{}", begun("Par"), chunk(half));
    let in_chunk = format!("{}400\r\ndata: ", begun("Par"));
    for (sent, last, ends) in [
        (begun("Par"), "", Ends::Closed),
        (begun("Par"), "", Ends::Reset),
        (begun("Par"), "", Ends::Silent),
        (in_event, half, Ends::Closed),
        (in_chunk, "data: ", Ends::Closed),
    ] {
        let set_up = if ends == Ends::Silent {
            impatient()
        } else {
            SetUp::default()
        };
        let mut scene = Scene::with(set_up).await;
        let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
        exchange.send(&sent).await;
        client.until(&delta("Par")).await;
        client.until(last).await;
        match ends {
            Ends::Closed => drop(exchange),
            Ends::Reset => reset(exchange),
            Ends::Silent => assert!(exchange.is_closed().await),
        }
        let all = format!("{}{last}", delta("Par"));
        assert_eq!(client.read().await.content(), (&*all, false), "{ends:?}");
        assert_eq!(scene.turn().await, (StreamEnd::Cut, Some("Par".into())));
        scene.leaves_nothing().await;
    }
}

/// The upstream sends one byte at a time. The test of one byte per second is in `relay`.
#[tokio::test]
async fn sends_a_byte_at_a_time() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM).await;
    let events = format!("{}{}{DONE}", delta("Par"), delta("is"));
    for byte in events.chars() {
        exchange.send(&chunk(&byte.to_string())).await;
    }
    exchange.send(END).await;
    assert_eq!(client.read().await.content(), (&*events, true));
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
        exchange.send(STREAM).await;
        for _ in 0..EVENTS {
            exchange.send(&framed).await;
        }
        exchange.send(END).await;
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
    let reply = says("Paris");
    exchange.send(&reply[..reply.len() - 9]).await;
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
    let reply = says("Paris").replace("connection: close\r\n", "");
    let stray = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray";
    exchange.send(&format!("{reply}{stray}")).await;
    let paris = completion("Paris");
    assert_eq!(client.read().await.content(), (&*paris, true));
    assert!(exchange.is_closed().await, "it is not asked there again");
    // Additional bytes of the reply are discarded: the next request has its own connection.
    client.send(&post_chat(CHAT)).await;
    let exchange = scene.harness.upstream.answer(&says("London")).await;
    assert_eq!(client.read().await.text(), completion("London"));
    let ends = scene.harness.turns(2, |turn| turn.meta.end).await;
    assert_eq!(ends, [StreamEnd::Complete; 2]);
    drop((client, exchange));
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn answers_with_an_error() {
    let mut scene = Scene::start().await;
    let statuses = [429, 500, 400];
    for status in statuses {
        let body = r#"{ "error" :{"message":"no","type":"x","code":"context_length_exceeded"}}"#;
        let more = "retry-after: 7\r\nx-ratelimit-reset-tokens: 9s\r\n";
        let reply = reply(&format!("{status} Said So"), more, body);
        let (_, seen) = scene.harness.exchange(&post_chat(CHAT), &reply).await;
        assert_eq!(seen.retry(), (status, Some("7")));
        assert_eq!(seen.text(), body);
        assert_eq!(seen.header("x-ratelimit-reset-tokens"), Some("9s"));
        assert!(scene.harness.upstream.is_unasked(), "a retry unasked");
    }
    let turns = scene.harness.log.wait(statuses.len()).await;
    let held: Vec<_> = turns.iter().map(said).collect();
    let errors = statuses.map(|status| (StreamEnd::UpstreamError { status }, None));
    assert_eq!(held, errors);
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn says_more_after_the_end_mark() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.stream("Paris").await;
    exchange.send(&chunk(DONE)).await;
    client.until("[DONE]").await;
    let turn = (StreamEnd::Complete, Some("Paris".into()));
    assert_eq!(scene.turn().await, turn);
    exchange.send(&chunk(": bye\n\n")).await;
    drop(exchange);
    let seen = client.read().await;
    assert!(
        !seen.is_whole && seen.text().ends_with(": bye\n\n"),
        "{seen:?}"
    );
    let n_turns = scene.harness.log.turns().len();
    assert_eq!(n_turns, 1, "its turn was written once");
    scene.leaves_nothing().await;
}
