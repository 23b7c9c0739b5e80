//! Connections in, and an orderly end.

mod connection;

use std::{io, sync::Arc, time::Duration};

use rustix::process::{Resource, getrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::connection::connection;
use crate::{gateway::Gateway, sessions::Sessions, stack};

/// How often what is silent is looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// The pause after a connection could not be accepted: most often all file descriptors are taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often it is said that no connection can be accepted.
const WARNING: Duration = Duration::from_secs(60);
/// Descriptors that no agent's connection takes: of the log, the control listener, the skills.
const RESERVED: u64 = 64;

/// How many connections of agents there may be at once: each may need one to an upstream, and some
/// descriptors are needed beside.
pub(crate) fn max_connections() -> usize {
    let n_files = getrlimit(Resource::Nofile).current;
    let n_files = n_files.unwrap_or(u64::MAX);
    let n_free = n_files.saturating_sub(RESERVED.min(n_files / 2));
    usize::try_from(n_free / 2).map_or(Semaphore::MAX_PERMITS, |n| {
        n.clamp(1, Semaphore::MAX_PERMITS)
    })
}

// === impl Gateway ===

impl Gateway {
    /// Serves until `stop`, then drains: accepts no more, lets replies under way end for at most
    /// `proxy.drain`, and sees the last turns into the log.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let recorded = CancellationToken::new();
        let tasks = self.tasks;
        tasks.spawn(self.worker.run(recorded.clone()));
        tasks.spawn(sweep(self.sessions, recorded.clone()));
        let (upstreams, serving, until) = (self.upstreams, self.serving, recorded.clone());
        tasks.spawn(async move {
            let watching = upstreams.watch_policy(&serving);
            until.run_until_cancelled(watching).await;
        });

        let mut connections = JoinSet::new();
        let service = stack::service(self.stack);
        let accepting = Accepting {
            listener: &listener,
            places: Arc::new(Semaphore::new(self.max_connections)),
            warned: None,
        };
        let accepting = accepting.run(&mut connections, |stream| {
            connection(service.clone(), stream, stop.clone())
        });
        stop.run_until_cancelled(accepting).await;
        drop(listener);

        let n_active = self.metrics.active_streams.get();
        let drain = self.drain;
        tracing::info!(n_active, %drain, "no new connections; replies under way go on");
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(drain.0, all).await.is_err() {
            let n_active = self.metrics.active_streams.get();
            tracing::warn!(n_active, "replies under way are cut off");
            self.recorder.cut();
        }
        connections.shutdown().await;
        recorded.cancel();
        tasks.close();
        tasks.wait().await;
    }
}

/// What accepts connections.
struct Accepting<'a> {
    listener: &'a TcpListener,
    places: Arc<Semaphore>,
    /// When it was last said that there is no place.
    warned: Option<Instant>,
}

// === impl Accepting ===

impl Accepting<'_> {
    /// Accepts connections for ever; those beyond the bound wait in the system's queue.
    async fn run<F>(mut self, connections: &mut JoinSet<()>, serve: impl Fn(TcpStream) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            if self.places.available_permits() == 0 {
                self.warn("as many connections are open as descriptors allow: others wait");
            }
            let accepted = tokio::select! {
                Some(_) = connections.join_next() => continue,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    let served = serve(stream);
                    connections.spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    self.warn(&format!("a connection cannot be accepted: {error}"));
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next connection, once there is a place for it.
    async fn accept(&self) -> io::Result<(TcpStream, Option<OwnedSemaphorePermit>)> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let (stream, _) = self.listener.accept().await?;
        // It is never closed.
        Ok((stream, place.ok()))
    }

    /// Says what is wrong, at most once in [`WARNING`].
    fn warn(&mut self, what: &str) {
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING) {
            self.warned = Some(Instant::now());
            tracing::warn!("{what}");
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

/// Lets go of what silent sessions hold.
async fn sweep(sessions: Arc<Sessions>, stop: CancellationToken) {
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        sessions.sweep();
    }
}
