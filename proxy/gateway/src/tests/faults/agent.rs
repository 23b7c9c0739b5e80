//! Tests in which the agent fails: it disconnects, reads slowly, or sends bad requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metaclaw_test_kit::has;
use metaclaw_turns::StreamEnd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Scene;
use crate::tests::harness::{CHAT, DONE, STREAM, chunk, delta, post_chat};

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
async fn hangs_up_within_the_reply_or_after_its_last_word() {
    let stop = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    for (said, event, end) in [
        ("Par", "", StreamEnd::ClientGone),
        ("Paris", stop, StreamEnd::Complete),
        ("Paris", DONE, StreamEnd::Complete),
    ] {
        let mut scene = Scene::start().await;
        let (mut client, mut exchange) = scene.harness.stream(said).await;
        if !event.is_empty() {
            exchange.send(&chunk(event)).await;
            client.until(event).await;
        }
        drop(client);
        assert!(exchange.is_closed().await, "the upstream is cancelled");
        assert_eq!(scene.turn().await, (end, Some(said.into())));
        scene.leaves_nothing().await;
    }
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
        exchange.send(STREAM).await;
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
    let questions = ["France", "Spain", "Italy"].map(|country| CHAT.replace("France", country));
    let all: Vec<u8> = questions.iter().flat_map(|body| post_chat(body)).collect();
    let mut client = scene.harness.sent(&all).await;
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
async fn sends_half_a_body_and_goes_or_waits() {
    let request = post_chat(CHAT);
    let half = &request[..request.len() - 20];
    let mut scene = Scene::start().await;
    let client = scene.harness.sent(half).await;
    scene
        .harness
        .until(|counts| counts.active_streams > 0)
        .await;
    drop(client);
    scene.is_at_rest().await;
    assert!(scene.harness.upstream.is_unasked());
    assert!(scene.harness.log.turns().is_empty());
    scene.leaves_nothing().await;

    let mut scene = Scene::start().await;
    let mut client = scene.harness.sent(half).await;
    scene.harness.until(|counts| counts.body_bytes > 0).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let seen = client.read().await;
    assert_eq!(seen.status(), 408);
    has(seen.text(), ["for 1 min"]);
    assert!(scene.harness.upstream.is_unasked());
    drop(client);
    scene.leaves_nothing().await;
}
