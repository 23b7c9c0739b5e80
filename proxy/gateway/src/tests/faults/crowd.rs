//! Tests with a thousand requests at once.

use futures_util::future::join_all;
use metaclaw_turns::StreamEnd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::Instant;

use super::Scene;
use crate::tests::harness::{CHAT, STREAM, chunk, delta, post_chat};

const STREAMS: usize = 1_000;

#[tokio::test]
async fn a_thousand_streams_at_once_are_all_served() {
    // Client, gateway (twice) and upstream are in one process here.
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();

    let mut scene = Scene::start().await;
    let began = Instant::now();
    let request = post_chat(CHAT);
    let clients = join_all((0..STREAMS).map(async |_| {
        let mut client = scene.harness.client().await;
        client.send(&request).await;
        client
    }));
    let mut clients = clients.await;
    let mut exchanges = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        let mut exchange = scene.harness.upstream.next().await;
        let event = chunk(&delta("Par"));
        exchange.send(format!("{STREAM}{event}").as_bytes()).await;
        exchanges.push(exchange);
    }
    join_all(clients.iter_mut().map(|client| client.until("Par"))).await;
    println!("all have their first byte after {:?}", began.elapsed());
    let n_active = scene.harness.metrics.counts().active_streams;
    assert_eq!(n_active, STREAMS as u64);

    for mut exchange in exchanges {
        let end = format!("{}0\r\n\r\n", chunk(&delta("is")));
        exchange.send(end.as_bytes()).await;
    }
    for mut client in clients {
        let seen = client.read().await;
        let all = format!("{}{}", delta("Par"), delta("is"));
        assert_eq!((seen.text(), seen.is_whole), (&*all, true));
    }
    let turns = scene.harness.log.wait(STREAMS).await;
    assert!(
        turns
            .iter()
            .all(|turn| turn.meta.end == StreamEnd::Complete)
    );
    assert_eq!(
        (turns.len(), scene.harness.metrics.counts().dropped),
        (STREAMS, 0)
    );
    scene.leaves_nothing().await;
}
