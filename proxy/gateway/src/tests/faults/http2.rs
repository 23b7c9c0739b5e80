//! Tests with many requests on one HTTP/2 connection: a failure of one affects no other.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use metaclaw_turns::StreamEnd;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

use super::{Scene, said};
use crate::tests::harness::{
    CHAT, Exchange, Harness, SOON, STREAM, SetUp, chunk, completion, delta,
};

type Sender = SendRequest<Full<Bytes>>;

/// Makes a connection that both sides know to be HTTP/2.
async fn connect(scene: &Scene, tasks: &mut JoinSet<()>) -> Sender {
    connect_as(scene, tasks, &Builder::new(TokioExecutor::new())).await
}

async fn connect_as(
    scene: &Scene,
    tasks: &mut JoinSet<()>,
    builder: &Builder<TokioExecutor>,
) -> Sender {
    let stream = TcpStream::connect(scene.harness.address).await.unwrap();
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tasks.spawn(async move { drop(connection.await) });
    sender
}

fn chat(question: &str) -> Request<Full<Bytes>> {
    let body = CHAT.replace("France", question);
    let request = Request::post("http://localhost/v1/chat/completions");
    request.body(Full::new(body.into())).unwrap()
}

/// Sends a request, and lets the upstream begin its reply.
async fn begun(
    scene: &mut Scene,
    sender: &mut Sender,
    question: &str,
) -> (Response<Incoming>, Exchange) {
    let asked = sender.send_request(chat(question));
    let begin = async {
        let mut exchange = scene.harness.upstream.next().await;
        let event = chunk(&delta(question));
        exchange.send(format!("{STREAM}{event}").as_bytes()).await;
        exchange
    };
    let (reply, exchange) = tokio::join!(asked, begin);
    (reply.unwrap(), exchange)
}

async fn next(reply: &mut Response<Incoming>) -> Option<Result<Bytes, hyper::Error>> {
    let frame = timeout(SOON, reply.frame()).await.expect("a frame")?;
    Some(frame.map(|frame| frame.into_data().unwrap()))
}

#[tokio::test]
async fn a_stream_that_breaks_takes_no_other_with_it() {
    let mut scene = Scene::start().await;
    let mut tasks = JoinSet::new();
    let mut sender = connect(&scene, &mut tasks).await;
    let (mut cut, upstream_of_cut) = begun(&mut scene, &mut sender, "Cut").await;
    let (mut left, mut upstream_of_left) = begun(&mut scene, &mut sender, "Left").await;
    let (mut whole, mut upstream_of_whole) = begun(&mut scene, &mut sender, "Whole").await;
    for reply in [&mut cut, &mut left, &mut whole] {
        assert_eq!(reply.status(), 200);
        next(reply).await.unwrap().unwrap();
    }

    drop(upstream_of_cut);
    assert!(next(&mut cut).await.unwrap().is_err(), "a cut is no end");
    drop(left);
    assert!(
        upstream_of_left.is_closed().await,
        "its upstream is cancelled"
    );
    let done = format!("{}0\r\n\r\n", chunk("data: [DONE]\n\n"));
    upstream_of_whole.send(done.as_bytes()).await;
    let rest = timeout(SOON, whole.collect()).await.expect("the end");
    assert_eq!(rest.unwrap().to_bytes(), "data: [DONE]\n\n");

    let turns = scene.harness.log.wait(3).await;
    let turns: Vec<_> = turns.iter().map(said).collect();
    for turn in [
        (StreamEnd::Cut, Some("Cut".into())),
        (StreamEnd::ClientGone, Some("Left".into())),
        (StreamEnd::Complete, Some("Whole".into())),
    ] {
        assert!(turns.contains(&turn), "{turn:?} in {turns:?}");
    }
    // The connection continues.
    let asked = sender.send_request(chat("Spain"));
    let answer = async {
        let mut exchange = scene.harness.upstream.next().await;
        exchange.say("Madrid").await;
    };
    let (reply, ()) = tokio::join!(asked, answer);
    let body = reply.unwrap().collect().await.unwrap().to_bytes();
    assert_eq!(body, completion("Madrid"));
    drop((sender, tasks, upstream_of_whole, upstream_of_left));
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn a_head_that_is_too_long_breaks_its_request_alone() {
    let scene = Scene::start().await;
    let mut tasks = JoinSet::new();
    let mut sender = connect(&scene, &mut tasks).await;
    let health = |long: usize| {
        let request = Request::get("http://localhost/healthz").header("x-long", "x".repeat(long));
        request.body(Full::default()).unwrap()
    };
    let reply = sender.send_request(health(70 << 10)).await;
    let refused = reply.map(|reply| reply.status().as_u16());
    assert!(matches!(refused, Ok(431) | Err(_)), "{refused:?}");
    let reply = sender.send_request(health(50 << 10)).await.unwrap();
    assert_eq!(reply.status(), 200);
    drop((reply, sender, tasks));
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn a_stream_whose_window_stays_shut_gives_its_place_back_and_others_go_on() {
    let set_up = SetUp {
        stalled: Some(Duration::from_millis(100)),
        ..SetUp::default()
    };
    let mut scene = Scene::of(Harness::with(set_up).await);
    let mut tasks = JoinSet::new();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1_000);
    let mut sender = connect_as(&scene, &mut tasks, &builder).await;
    let (mut stuck, mut upstream_of_stuck) = begun(&mut scene, &mut sender, "Stuck").await;
    let (mut read, mut upstream_of_read) = begun(&mut scene, &mut sender, "Read").await;
    next(&mut read).await.unwrap().unwrap();
    let long = chunk(&": stuck\n".repeat(10_000));
    upstream_of_stuck.send(long.as_bytes()).await;
    let metrics = scene.harness.metrics.clone();
    let given_up = async {
        while metrics.counts().active_streams > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, given_up).await.expect("its place");
    assert!(upstream_of_stuck.is_closed().await);

    let done = format!("{}0\r\n\r\n", chunk("data: [DONE]\n\n"));
    upstream_of_read.send(done.as_bytes()).await;
    let rest = timeout(SOON, read.collect()).await.expect("the end");
    assert_eq!(rest.unwrap().to_bytes(), "data: [DONE]\n\n");
    // The agent that reads again later sees that its reply was cut.
    let cut = async { while next(&mut stuck).await.expect("a cut").is_ok() {} };
    timeout(SOON, cut).await.expect("the cut");
    let turns = scene.harness.log.wait(2).await;
    let turns: Vec<_> = turns.iter().map(said).collect();
    assert!(turns.contains(&(StreamEnd::ClientGone, Some("Stuck".into()))));
    drop((stuck, sender, tasks, upstream_of_read, upstream_of_stuck));
    scene.leaves_nothing().await;
}

#[tokio::test]
async fn a_stream_whose_window_is_shut_from_its_beginning_gives_its_place_back() {
    let set_up = SetUp {
        stalled: Some(Duration::from_millis(100)),
        ..SetUp::default()
    };
    let mut scene = Scene::of(Harness::with(set_up).await);
    let mut tasks = JoinSet::new();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let mut sender = connect_as(&scene, &mut tasks, &builder).await;
    let (shut, mut upstream) = begun(&mut scene, &mut sender, "Shut").await;
    let metrics = scene.harness.metrics.clone();
    let given_up = async {
        while metrics.counts().active_streams > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, given_up).await.expect("its place");
    assert!(upstream.is_closed().await);
    drop((shut, sender, tasks, upstream));
    scene.leaves_nothing().await;
}
