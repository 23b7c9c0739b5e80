//! Accepts connections, and ends them.

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

const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// The largest number of connections at once. Others wait in the system's queue.
const MAX_CONNECTIONS: usize = 1024;
/// The pause after a connection could not be accepted, mostly because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `ending`, then until the last running request is answered.
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
    // This fails if the connection was closed in the meantime.
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
        // The client disconnected, a reply was cut, or a head took too long.
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
