//! Tests with a thousand requests at once.

use futures_util::future::join_all;
use metaclaw_turns::StreamEnd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::Instant;

use super::Scene;
use crate::tests::harness::{CHAT, delta, post_chat};

const STREAMS: usize = 1_000;

#[tokio::test]
async fn a_thousand_streams_at_once_are_all_served() {
    // Client, gateway (twice) and upstream are in one process here.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();

    let mut scene = Scene::start().await;
    let began = Instant::now();
    let request = post_chat(CHAT);
    let mut clients = join_all((0..STREAMS).map(|_| scene.harness.sent(&request))).await;
    let mut exchanges = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        let mut exchange = scene.harness.upstream.next().await;
        exchange.begin("Par").await;
        exchanges.push(exchange);
    }
    join_all(clients.iter_mut().map(|client| client.until("Par"))).await;
    println!("all have their first byte after {:?}", began.elapsed());
    let n_active = scene.harness.metrics.counts().active_streams;
    assert_eq!(n_active, STREAMS as u64);

    for mut exchange in exchanges {
        exchange.end(&delta("is")).await;
    }
    let all = format!("{}{}", delta("Par"), delta("is"));
    for mut client in clients {
        assert_eq!(client.read().await.content(), (&*all, true));
    }
    let ends = scene.harness.turns(STREAMS, |turn| turn.meta.end).await;
    assert_eq!(ends, [StreamEnd::Complete; STREAMS]);
    assert_eq!(scene.harness.metrics.counts().dropped, 0);
    scene.leaves_nothing().await;
}
