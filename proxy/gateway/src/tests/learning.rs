//! Tests of the copy for the log: whatever happens to it, the agent's reply is the same.

use metaclaw_chat::Size;
use metaclaw_turns::StreamEnd;

use super::harness::{
    CHAT, DONE, END, Harness, STREAM, SetUp, chunk, completion, delta, post_chat, says,
};

fn stream(texts: &[&str]) -> String {
    let chunks: String = texts.iter().map(|text| chunk(&delta(text))).collect();
    format!("{STREAM}{chunks}{}{END}", chunk(DONE))
}

#[tokio::test]
async fn a_reply_too_long_to_keep_reaches_the_agent_whole() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.capture_memory = Size(64 << 10);
    let mut harness = Harness::with(set_up).await;
    let long = "x".repeat(40 << 10);
    let (_, seen) = harness
        .exchange(&post_chat(CHAT), &stream(&[&long, "end"]))
        .await;
    assert!(seen.is_whole && seen.text().contains(&long) && seen.text().ends_with("[DONE]\n\n"));
    let turn = &harness.log.wait(1).await[0];
    assert_eq!((turn.meta.end, &turn.reply), (StreamEnd::Overflowed, &None));
    // A request that finds no room is not in the log, and is counted.
    let body = CHAT.replace("France", &"F".repeat(80 << 10));
    let (_, seen) = harness
        .exchange(&post_chat(&body), &stream(&["Paris"]))
        .await;
    assert!(seen.is_whole);
    harness
        .exchange(&post_chat(CHAT), &stream(&["Paris"]))
        .await;
    let turns = harness.log.wait(2).await;
    assert_eq!(turns[1].reply.as_ref().unwrap().text(), "Paris");
    assert_eq!(harness.metrics.counts().overflowed, 2);
    harness.until(|counts| counts.capture_bytes == 0).await;
}

#[tokio::test]
async fn a_reply_with_an_event_too_long_to_read_is_not_taken_for_a_whole_one() {
    let mut harness = Harness::start().await;
    let long = "x".repeat(metaclaw_dialects::sse::MAX_EVENT);
    let (_, seen) = harness
        .exchange(&post_chat(CHAT), &stream(&["Par", &long, "is"]))
        .await;
    assert!(seen.is_whole && seen.text().contains(&long));
    let turn = &harness.log.wait(1).await[0];
    assert_eq!((turn.meta.end, &turn.reply), (StreamEnd::Overflowed, &None));
    assert_eq!(harness.metrics.counts().overflowed, 1);
}

#[tokio::test]
async fn a_log_that_is_broken_or_stuck_costs_no_reply() {
    let mut harness = Harness::with(SetUp {
        at_once: Some(64),
        ..SetUp::default()
    })
    .await;
    *harness.log.broken.lock().unwrap() = Some("disk full".into());
    harness.chat("", CHAT, "x").await;
    harness.until(|counts| counts.failed != 0).await;
    *harness.log.broken.lock().unwrap() = None;
    harness.log.hold();
    let mut client = harness.sent(&post_chat(CHAT)).await;
    // All use one connection, because there are many.
    let reply = says("x").replace("connection: close\r\n", "");
    let mut exchange = harness.upstream.answer(&reply).await;
    assert!(client.read().await.is_whole);
    // 64 wait for the log. The others are dropped and counted, and answered anyway.
    for _ in 0..160 {
        client.send(&post_chat(CHAT)).await;
        exchange.read_more().await;
        exchange.send(&reply).await;
        assert!(client.read().await.is_whole);
    }
    let counts = harness.metrics.counts();
    assert!((94..=98).contains(&counts.dropped), "{counts:?}");
    harness.log.let_go(2_000);
    harness.log.wait(63).await;
}

#[tokio::test]
async fn strict_holds_the_end_of_a_reply_until_the_log_has_it() {
    let mut set_up = SetUp::default();
    set_up.config.strict = true;
    let mut harness = Harness::with(set_up).await;
    harness.log.hold();
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(&stream(&["Par", "is"])).await;
    // Everything arrives except the mark with which clients recognise the end.
    client.until(&delta("is")).await;
    assert!(client.is_silent().await);
    harness.log.let_go(1);
    let seen = client.read().await;
    assert!(seen.is_whole && seen.text().ends_with(DONE));

    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let reply = says("Paris");
    let (most, rest) = reply.split_at(reply.len() - 5);
    exchange.send(&most).await;
    client.until("prompt_tokens").await;
    exchange.send(&rest).await;
    assert!(client.is_silent().await);
    harness.log.let_go(1);
    let paris = completion("Paris");
    assert_eq!(client.read().await.content(), (&*paris, true));
    assert_eq!(harness.log.turns().len(), 2);
}

#[tokio::test]
async fn what_is_not_recorded_is_taught_and_relayed_all_the_same() {
    let mut set_up = SetUp::default();
    set_up.config.unrecorded = true;
    let mut harness = Harness::with(set_up).await;
    let (exchange, seen) = harness
        .exchange(&post_chat(CHAT), &stream(&["Par", "is"]))
        .await;
    assert!(seen.is_whole && seen.text().contains("is"));
    assert!(exchange.body().contains("What is the capital"));
    assert_eq!(harness.metrics.counts().recorded, 0);
    assert_eq!(harness.metrics.counts().dropped, 0);
    assert!(harness.log.turns().is_empty());
}
