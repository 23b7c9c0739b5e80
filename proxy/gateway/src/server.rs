//! Serves connections, and ends in an orderly way.

mod connection;
mod local;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use self::connection::connection;
pub use self::local::serve_local;
use crate::{accept::Accepting, gateway::Gateway, sessions::SessionContexts, stack};

/// The time for a request's headers, and for a connection without a request. It equals nginx's keep-alive, which is
/// longer than clients keep connections, so that none writes into a closing one.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
const SWEEP: Duration = Duration::from_secs(30);

// === impl Gateway ===

impl Gateway {
    /// Serves until `stop`, then drains: accepts no more connections, gives running replies at most `proxy.drain` to
    /// end, and waits until the last turns are in the log.
    pub fn serve(self, listener: TcpListener, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (metrics, recorder) = (self.metrics(), self.stack.probes.recorder.clone());
            let (tasks, recorded) = (self.tasks, CancellationToken::new());
            tasks.spawn(self.worker.run(recorded.clone()));
            let sessions = Arc::clone(&self.stack.served.chat.sessions);
            tasks.spawn(sweep(sessions, recorded.clone()));
            let (upstreams, until) = (Arc::clone(&self.stack.served.upstreams), recorded.clone());
            tasks.spawn(async move {
                until.run_until_cancelled(upstreams.watch_policy()).await;
            });

            let mut connections = JoinSet::new();
            let service = stack::service(self.stack);
            let accepting = Accepting::new(&listener, self.max_connections, || false)
                .run(&mut connections, |stream| {
                    connection(service.clone(), stream, HEADER_TIMEOUT, stop.clone())
                });
            stop.run_until_cancelled(accepting).await;
            drop(listener);

            let n_active = metrics.active_streams.get();
            let drain = self.drain;
            tracing::info!(
                "no new connections are accepted; running replies ({n_active}) have {drain} to end"
            );
            let all = async { while connections.join_next().await.is_some() {} };
            if timeout(drain.0, all).await.is_err() {
                let n_active = metrics.active_streams.get();
                tracing::warn!(n_active, "running replies are cut off");
                recorder.cut();
            }
            connections.shutdown().await;
            recorded.cancel();
            tasks.close();
            tasks.wait().await;
        })
    }
}

async fn sweep(sessions: Arc<SessionContexts>, stop: CancellationToken) {
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        sessions.sweep();
    }
}
