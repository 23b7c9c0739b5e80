//! Connections in, and an orderly end.

mod connection;
mod stalled_streams;
mod timed_stream;

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::connection::connection;
pub(crate) use self::stalled_streams::StalledStreams;
use crate::{gateway::Gateway, gateway::Shared};

/// How often what is silent is looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// The pause after a connection could not be accepted: most often all file descriptors are taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

// === impl Gateway ===

impl Gateway {
    /// Serves until `stop`, then drains: accepts no more, lets replies under way end for at most
    /// `proxy.drain`, and sees the last turns into the log.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let Self { shared, recordings } = self;
        let recorded = CancellationToken::new();
        let helpers = TaskTracker::new();
        helpers.spawn(recordings.run(recorded.clone()));
        helpers.spawn(sweep(Arc::clone(&shared), recorded.clone()));
        let (watched, until) = (Arc::clone(&shared), recorded.clone());
        helpers.spawn(async move {
            let watching = watched.upstreams.watch_policy(&watched.serving);
            until.run_until_cancelled(watching).await;
        });

        let mut connections = JoinSet::new();
        let accepting = accept(&shared, &listener, &mut connections, &stop);
        stop.run_until_cancelled(accepting).await;
        drop(listener);

        let n_active = shared.metrics.active_streams.get();
        let drain = shared.config.proxy.drain;
        tracing::info!(n_active, %drain, "no new connections; replies under way go on");
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(drain.0, all).await.is_err() {
            let n_active = shared.metrics.active_streams.get();
            tracing::warn!(n_active, "replies under way are cut off");
        }
        connections.shutdown().await;
        recorded.cancel();
        helpers.close();
        helpers.wait().await;
    }
}

/// Accepts connections for ever.
async fn accept(
    shared: &Arc<Shared>,
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
    stop: &CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(Arc::clone(shared), stream, stop.clone()));
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                let n_active = shared.metrics.active_streams.get();
                tracing::warn!(%error, n_active, "a connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The connection broke before it was ours; the next one is none the worse.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Lets go of what silent sessions hold, and of replies that nobody takes.
async fn sweep(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        shared.sessions.sweep();
        shared.stalled.sweep();
    }
}
