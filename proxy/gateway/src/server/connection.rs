//! One connection of an agent: its limits, and the detection of a lost peer.

use std::{
    convert::Infallible,
    io,
    pin::pin,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

use crate::{body::BoxError, timed_stream::TimedStream};

/// The largest head of a request, and the largest amount that hyper reads ahead of a body. For more, the answer is 431.
const MAX_HEAD: usize = 64 << 10;
/// The most fields in it. For more, the answer is 431 too. hyper allocates the room for them for each head, which takes
/// 30 ns, because it does not fill it.
const MAX_HEADERS: usize = 1_024;
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
const KEEP_ALIVE_PROBES: u32 = 4;

/// The error that broke a reply. It is a separate type, because the compiler cannot show that a task with hyper's bound
/// on boxed errors is `Send`.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct BrokenReply(BoxError);

/// Serves one connection to its end. After `stop`, serves only the running requests.
pub(super) async fn connection<S, B>(
    service: S,
    stream: TcpStream,
    header_timeout: Duration,
    stop: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    if let Err(error) = set_up(&stream) {
        // It was closed in the meantime, or the system does not have these settings. It is served anyway.
        tracing::debug!(%error, "a connection keeps the system's settings");
    }
    let broken = |error: B::Error| BrokenReply(error.into());
    let service =
        service.map_response(move |reply| reply.map(|body| body.map_err(broken).boxed_unsync()));
    let service = TowerToHyperService::new(service);
    let io = TokioIo::new(TimedStream::new(stream));
    let mut connection = pin!(builder(header_timeout).serve_connection(io, service));
    let mut ended = stop.run_until_cancelled(connection.as_mut()).await;
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
        ended = Some(connection.await);
    }
    if let Some(Err(error)) = ended {
        // The client disconnected, or a reply was cut, which is logged elsewhere.
        tracing::debug!(%error, "a connection ended");
    }
}

fn builder(header_timeout: Duration) -> http1::Builder {
    // hyper's `date` panics before 1970, where the clock of a machine without a battery may begin.
    let has_date = SystemTime::now() >= UNIX_EPOCH;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .auto_date_header(has_date)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_HEAD);
    builder
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    // Each event of a stream is sent at once, not when a segment is full.
    stream.set_nodelay(true)?;
    // A model may think for half an hour, and the agent's machine may disappear in the meantime.
    let probes = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}
