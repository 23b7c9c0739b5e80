//! One connection of an agent: its limits, and how it is noticed that nobody is there any more.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::Watcher},
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::sync::CancellationToken;

use super::patient::Patient;
use crate::{gateway::Shared, handlers::handle};

/// How long a connection may take for a request's headers, and stay open without one. As nginx's
/// keep-alive: longer than clients keep theirs, so that none writes into a closing connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
/// The longest head of a request, and what hyper keeps of a body at once; beyond, 431. More than
/// 100 headers are answered with 431 as well: hyper's own bound.
const MAX_HEAD: usize = 64 << 10;
/// The same for HTTP/2, which counts 32 bytes more for each header.
const MAX_HEAD_H2: u32 = 64 << 10;
/// Requests at once on one HTTP/2 connection; `proxy.max_streams` bounds them all.
const MAX_STREAMS_H2: u32 = 250;
/// A host that says nothing for so long is asked whether it is still there,
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// every so often,
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// and given up after so many answers that did not come.
const KEEP_ALIVE_PROBES: u32 = 4;

/// Serves one connection to its end.
pub(super) async fn connection(
    shared: Arc<Shared>,
    stream: std::net::TcpStream,
    watcher: Watcher,
    stop: CancellationToken,
) {
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "a connection cannot be served");
            return;
        }
    };
    if let Err(error) = set_up(&stream) {
        // It was closed meanwhile, or the system does not know these: it is served all the same.
        tracing::debug!(%error, "a connection keeps the system's settings");
    }
    if !speaks(&stream, &stop).await {
        return;
    }
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(handle(shared, request).await) }
    });
    let builder = builder();
    let connection = builder.serve_connection(TokioIo::new(Patient::new(stream)), service);
    if let Err(error) = watcher.watch(connection).await {
        // A client that hung up, or a reply that was cut: told elsewhere.
        tracing::debug!(%error, "a connection ended");
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD_H2)
        .max_concurrent_streams(MAX_STREAMS_H2)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_EVERY);
    builder
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    // Each event of a stream goes out as it comes, not when a segment is full.
    stream.set_nodelay(true)?;
    // A model may think for half an hour, and the agent's machine be gone meanwhile.
    let probes = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

/// Whether a first byte comes. hyper's own clock starts with it: a connection that sends none is
/// closed here, and at once when we are to end.
async fn speaks(stream: &TcpStream, stop: &CancellationToken) -> bool {
    // Not `readable`: that says yes of a connection just accepted, whatever came.
    let mut first = [0];
    let heard = timeout(HEADER_TIMEOUT, stream.peek(&mut first));
    matches!(stop.run_until_cancelled(heard).await, Some(Ok(Ok(1))))
}
