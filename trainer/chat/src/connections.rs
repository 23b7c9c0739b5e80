//! Connections in, and their end.

use std::{io, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// How long a connection may take for a request's head, and stay open without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Connections at once: those beyond wait in the system's queue.
const MAX_CONNECTIONS: usize = 1024;
/// The pause after a connection could not be accepted: most often all file descriptors are taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `ending`, then until the last request that was under way is answered.
pub async fn serve(listener: TcpListener, router: Router, ending: CancellationToken) {
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            while connections.len() >= MAX_CONNECTIONS {
                connections.join_next().await;
            }
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone(), ending.clone()));
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    ending.run_until_cancelled(accepting).await;
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(stream: TcpStream, router: Router, ending: CancellationToken) {
    // It was closed meanwhile if this fails.
    stream.set_nodelay(true).ok();
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let service = TowerToHyperService::new(router);
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut ended = ending.run_until_cancelled(served.as_mut()).await;
    if ended.is_none() {
        served.as_mut().graceful_shutdown();
        ended = Some(served.await);
    }
    if let Some(Err(error)) = ended {
        // A client that hung up, a reply that was cut, or a head that took too long.
        tracing::debug!(%error, "a connection ended");
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
