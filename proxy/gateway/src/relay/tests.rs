//! Tests of time on a paused clock, with connections in memory only.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinSet,
    time::Instant,
};

use super::*;
use crate::{body::Body, gathered::Gathered};

const SECOND: Duration = Duration::from_secs(1);
/// The value of `upstreams.<name>.idle` in these tests.
const IDLE: Duration = Duration::from_secs(2);

/// Makes a running reply, and the upstream's end of its connection.
async fn reply(tasks: &mut JoinSet<()>) -> (Body, DuplexStream) {
    let (ours, mut theirs) = duplex(1 << 10);
    let (mut sender, connection) = handshake(TokioIo::new(ours)).await.unwrap();
    tasks.spawn(async move { drop(connection.await) });
    let request = sender.send_request(Request::new(Empty::<Bytes>::new()));
    let answer = async {
        let mut asked = [0; 256];
        assert_ne!(theirs.read(&mut asked).await.unwrap(), 0);
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        theirs.write_all(head).await.unwrap();
    };
    let (reply, ()) = tokio::join!(request, answer);
    let body = UpstreamBody::from(reply.unwrap().into_body());
    let relay = Gathered::new(Relay::new(body, None, Some(IDLE)));
    (relay.boxed_unsync(), theirs)
}

#[tokio::test(start_paused = true)]
async fn a_byte_a_second_is_no_silence_and_none_of_them_waits() {
    let mut tasks = JoinSet::new();
    let (mut relay, mut upstream) = reply(&mut tasks).await;
    tasks.spawn(async move {
        for _ in 0..3_600 {
            tokio::time::sleep(SECOND).await;
            upstream.write_all(b"1\r\nx\r\n").await.unwrap();
        }
        upstream.write_all(b"0\r\n\r\n").await.unwrap();
    });
    let began = Instant::now();
    for n in 1..=3_600 {
        let frame = relay.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "x");
        assert_eq!(began.elapsed().as_secs(), n);
    }
    assert!(relay.frame().await.is_none());
    drop(relay);
    while tasks.join_next().await.is_some() {}
}

#[tokio::test]
async fn events_that_came_together_go_on_together() {
    let mut tasks = JoinSet::new();
    let (mut relay, mut upstream) = reply(&mut tasks).await;
    upstream.write_all(&b"1\r\nx\r\n".repeat(60)).await.unwrap();
    let frame = relay.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "x".repeat(60));
    upstream.write_all(b"0\r\n\r\n").await.unwrap();
    assert!(relay.frame().await.is_none());
    drop(relay);
    while tasks.join_next().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn what_came_before_a_cut_has_time_to_be_written() {
    let mut tasks = JoinSet::new();
    let (mut relay, mut upstream) = reply(&mut tasks).await;
    upstream.write_all(b"1\r\nx\r\n1\r\ny\r\n").await.unwrap();
    drop(upstream);
    let began = Instant::now();
    let frame = relay.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "xy");
    assert!(began.elapsed().is_zero());
    // hyper drops unwritten bytes when it gets an error.
    assert!(relay.frame().await.unwrap().is_err());
    assert!(!began.elapsed().is_zero());
    drop(relay);
    while tasks.join_next().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn a_silence_that_is_too_long_is_a_cut() {
    let mut tasks = JoinSet::new();
    let (mut relay, mut upstream) = reply(&mut tasks).await;
    upstream.write_all(b"1\r\nx\r\n").await.unwrap();
    assert!(relay.frame().await.unwrap().is_ok());
    let began = Instant::now();
    let error = relay.frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the upstream was silent for 2s");
    assert_eq!(began.elapsed().as_secs(), IDLE.as_secs());
    drop(relay);
    assert_eq!(upstream.read(&mut [0; 8]).await.unwrap(), 0, "cancelled");
    while tasks.join_next().await.is_some() {}
}

/// The agent reads nothing for a while. The upstream was not silent, because the proxy did not read from it.
#[tokio::test(start_paused = true)]
async fn the_agents_own_pause_is_not_the_upstreams() {
    let mut tasks = JoinSet::new();
    let (mut relay, mut upstream) = reply(&mut tasks).await;
    upstream.write_all(b"1\r\nx\r\n").await.unwrap();
    assert!(relay.frame().await.unwrap().is_ok());
    upstream.write_all(b"1\r\ny\r\n").await.unwrap();
    tokio::time::sleep(10 * IDLE).await;
    assert!(relay.frame().await.unwrap().is_ok());
    drop(relay);
    while tasks.join_next().await.is_some() {}
}
