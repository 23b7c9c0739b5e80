//! One connection of an agent: its limits, and how it is noticed that nobody is there any more.

use std::{convert::Infallible, io, pin::pin, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use metaclaw_dialects::Dialect;
use metaclaw_http1::Server;
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Incoming, begun::Begun, patient::Patient};
use crate::{
    gateway::Shared,
    handlers::{handle, refuse},
    refusal::Refusal,
    relay::BoxError,
};

/// How long a connection may take for a request's headers, and stay open without one. As nginx's
/// keep-alive: longer than clients keep theirs, so that none writes into a closing connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
/// The longest head of a request of HTTP/2, which counts 32 bytes more for each header.
const MAX_HEAD_H2: u32 = 64 << 10;
/// Requests at once on one HTTP/2 connection; `proxy.max_streams` bounds them all.
const MAX_STREAMS_H2: u32 = 250;
/// A host that says nothing for so long is asked whether it is still there,
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// every so often,
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// and given up after so many answers that did not come.
const KEEP_ALIVE_PROBES: u32 = 4;

/// What broke a reply, in a type that hyper may take across threads.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Broken(BoxError);

/// Serves one connection to its end.
pub(super) async fn connection(
    shared: Arc<Shared>,
    stream: std::net::TcpStream,
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
    // A connection that says nothing is closed, and at once when we are to end.
    let begin = timeout(HEADER_TIMEOUT, Begun::of(Patient::new(stream)));
    let Some(Ok(Ok(Some(begun)))) = stop.run_until_cancelled(begin).await else {
        return;
    };
    if begun.is_http2() {
        // Few speak it, and all the others would keep room for it.
        return Box::pin(http2(shared, begun, stop)).await;
    }
    let refuse = |malformed| {
        let refusal = Refusal::NoHttp(malformed);
        refuse(&shared, &refusal, Dialect::OpenAi)
    };
    let handle = |request: http::Request<_>| {
        let request = request.map(Incoming::Left);
        handle(Arc::clone(&shared), request)
    };
    let server = Server::new(begun.io, begun.read, HEADER_TIMEOUT);
    if let Err(error) = server.serve(&stop, handle, refuse).await {
        // A client that hung up, or a reply that was cut: told elsewhere.
        tracing::debug!(%error, "a connection ended");
    }
}

async fn http2(shared: Arc<Shared>, begun: Begun<Patient<TcpStream>>, stop: CancellationToken) {
    let service = service_fn(move |request: http::Request<_>| {
        let request = request.map(Incoming::Right);
        let shared = Arc::clone(&shared);
        async move {
            let reply = handle(shared, request).await;
            Ok::<_, Infallible>(reply.map(|body| body.map_err(Broken).boxed_unsync()))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new()).http2_only();
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD_H2)
        .max_concurrent_streams(MAX_STREAMS_H2)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_EVERY);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(begun), service));
    let ended = stop.run_until_cancelled(connection.as_mut()).await;
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
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
