//! Tests in which the agent fails: it disconnects, reads slowly, or sends bad requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metaclaw_turns::StreamEnd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Scene;
use crate::tests::harness::{CHAT, STREAM, chunk, delta, post_chat};

#[tokio::test]
async fn hangs_up_before_the_first_byte() {
    let mut scene = Scene::start().await;
    let (client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    drop(client);
    assert!(exchange.is_closed().await, "the upstream is cancelled");
    scene.is_at_rest().await;
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn hangs_up_within_the_reply() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let event = chunk(&delta("Par"));
    exchange.send(format!("{STREAM}{event}").as_bytes()).await;
    client.until("Par").await;
    drop(client);
    assert!(exchange.is_closed().await, "the upstream is cancelled");
    assert_eq!(
        scene.turn().await,
        (StreamEnd::ClientGone, Some("Par".into()))
    );
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn hangs_up_after_the_last_word() {
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let done = chunk("data: [DONE]\n\n");
    let events = format!("{STREAM}{}{done}", chunk(&delta("Paris")));
    exchange.send(events.as_bytes()).await;
    client.until("[DONE]").await;
    drop(client);
    assert_eq!(
        scene.turn().await,
        (StreamEnd::Complete, Some("Paris".into()))
    );
    assert!(exchange.is_closed().await);
    scene.leaves_nothing().await;
}

/// Between an upstream that sends a gigabyte and an agent that reads a kilobyte now and then, there are only the
/// buffers of two connections, and none of ours.
#[tokio::test]
async fn reads_a_kilobyte_at_a_time() {
    const BETWEEN: u64 = 32 << 20;
    let mut scene = Scene::start().await;
    let (mut client, mut exchange) = scene.harness.ask(&post_chat(CHAT)).await;
    let read = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&read);
    let event = chunk(&delta(&"x".repeat(64 << 10)));
    let sending = async move {
        exchange.send(STREAM.as_bytes()).await;
        let mut sent = 0;
        while exchange.stream.write_all(event.as_bytes()).await.is_ok() {
            sent += event.len() as u64;
            let between = sent - seen.load(Ordering::Relaxed).min(sent);
            assert!(between < BETWEEN, "{} MiB lie between", between >> 20);
            assert!(sent < 1 << 30, "a gigabyte was taken");
        }
        sent
    };
    let reading = async {
        let mut kilobyte = [0; 1 << 10];
        for _ in 0..100 {
            client.stream.read_exact(&mut kilobyte).await.unwrap();
            read.fetch_add(1 << 10, Ordering::Relaxed);
            // The upstream gets time to send everything that anybody reads.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(client);
    };
    let (sent, ()) = tokio::join!(sending, reading);
    assert!(sent > 1 << 20, "it said more than was read: {sent}");
    let (end, _) = scene.turn().await;
    let ends = [StreamEnd::ClientGone, StreamEnd::Overflowed];
    assert!(ends.contains(&end), "{end:?}");
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn pipelines() {
    let mut scene = Scene::start().await;
    let mut client = scene.harness.client().await;
    let questions = ["France", "Spain", "Italy"].map(|country| CHAT.replace("France", country));
    let all: Vec<u8> = questions.iter().flat_map(|body| post_chat(body)).collect();
    client.send(&all).await;
    for body in &questions {
        let mut exchange = scene.harness.upstream.next().await;
        assert_eq!(exchange.body(), body, "asked in order");
        assert!(scene.harness.upstream.is_unasked(), "and one by one");
        exchange.say("x").await;
        exchange.stream.shutdown().await.unwrap();
    }
    for _ in &questions {
        let seen = client.read().await;
        assert!(seen.is_whole && seen.status() == 200);
    }
    scene.harness.log.wait(3).await;
    drop(client);
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn sends_half_a_body_and_goes() {
    let mut scene = Scene::start().await;
    let mut client = scene.harness.client().await;
    let request = post_chat(CHAT);
    client.send(&request[..request.len() - 20]).await;
    while scene.harness.metrics.counts().active_streams == 0 {
        tokio::task::yield_now().await;
    }
    drop(client);
    scene.is_at_rest().await;
    assert!(scene.harness.upstream.is_unasked());
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn sends_half_a_body_and_waits() {
    let mut scene = Scene::start().await;
    let mut client = scene.harness.client().await;
    let request = post_chat(CHAT);
    client.send(&request[..request.len() - 20]).await;
    while scene.harness.metrics.counts().body_bytes == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let seen = client.read().await;
    assert_eq!(seen.status(), 408);
    assert!(seen.text().contains("for 1 min"), "{}", seen.text());
    assert!(scene.harness.upstream.is_unasked());
    drop(client);
    scene.leaves_nothing().await;
}
