//! Connections in, and an orderly end.

mod begun;
mod connection;
mod incoming;
mod patient;
mod unread;

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    runtime::Handle,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::connection::connection;
pub(crate) use self::{incoming::Incoming, unread::Unread};
use crate::{gateway::Gateway, gateway::Shared};

/// How often what is silent is looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// The pause after a connection could not be accepted: most often all file descriptors are taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What accepts connections.
struct Accepting<'a> {
    shared: &'a Shared,
    listener: &'a TcpListener,
    connections: &'a mut JoinSet<()>,
    /// Where they are served.
    runtimes: &'a [Handle],
}

// === impl Gateway ===

impl Gateway {
    /// Serves until `stop`, then drains: accepts no more, lets replies under way end for at most
    /// `proxy.drain`, and sees the last turns into the log.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let Self {
            shared,
            recordings,
            threads,
        } = self;
        let recorded = CancellationToken::new();
        let helpers = TaskTracker::new();
        let runtimes = threads.runtimes();
        for (recordings, runtime) in recordings.into_iter().zip(&runtimes) {
            helpers.spawn_on(recordings.run(recorded.clone()), runtime);
        }
        helpers.spawn(sweep(Arc::clone(&shared), recorded.clone()));

        let mut connections = JoinSet::new();
        let serve = |stream| connection(Arc::clone(&shared), stream, stop.clone());
        let accepting = Accepting {
            shared: &shared,
            listener: &listener,
            connections: &mut connections,
            runtimes: &runtimes,
        };
        let accepting = accepting.each(serve);
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
        threads.end().await;
    }
}

// === impl Accepting ===

impl Accepting<'_> {
    /// Accepts connections for ever, and deals them out in turn.
    async fn each<S>(self, serve: impl Fn(std::net::TcpStream) -> S)
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let mut in_turn = self.runtimes.iter().cycle();
        loop {
            let accepted = tokio::select! {
                Some(_) = self.connections.join_next() => continue,
                accepted = self.listener.accept() => accepted,
            };
            // It is registered with the runtime that serves it.
            let stream = accepted.and_then(|(stream, _)| stream.into_std());
            match (stream, in_turn.next()) {
                (Ok(stream), Some(runtime)) => {
                    self.connections.spawn_on(serve(stream), runtime);
                }
                (Ok(_), None) => return,
                (Err(error), _) if is_of_the_connection(&error) => {}
                (Err(error), _) => {
                    let n_active = self.shared.metrics.active_streams.get();
                    tracing::warn!(%error, n_active, "a connection cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
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
        shared.unread.sweep();
    }
}
