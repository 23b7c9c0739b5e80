//! Connections on threads of their own.

use std::sync::Arc;

use tokio::{task::yield_now, time::timeout};

use super::harness::{CHAT, Harness, SOON, SetUp};
use crate::Threads;

#[tokio::test]
async fn connections_are_dealt_out_to_threads_that_end_with_the_gateway() {
    let set_up = SetUp {
        threads: Some(Threads::start(2).unwrap()),
        ..SetUp::default()
    };
    let mut harness = Harness::with(set_up).await;
    for _ in 0..4 {
        harness.chat("", CHAT, "Paris").await;
    }
    assert_eq!(harness.log.wait(4).await.len(), 4);
    assert_eq!(harness.log.threads(), ["relay-0", "relay-1"]);
    harness.stop.cancel();
    // The last thing that the gateway does is to see its threads end.
    let ended = async {
        while Arc::strong_count(&harness.shared) > 1 {
            yield_now().await;
        }
    };
    timeout(SOON, ended).await.expect("an end");
}

#[tokio::test]
async fn what_still_blocks_there_is_not_waited_for() {
    let threads = Threads::start(1).unwrap();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (begins, begun) = tokio::sync::oneshot::channel();
    threads.runtimes()[0].spawn_blocking(move || {
        begins.send(()).unwrap();
        held.recv()
    });
    begun.await.unwrap();
    timeout(SOON, threads.end()).await.expect("an end");
    drop(let_go);
}
