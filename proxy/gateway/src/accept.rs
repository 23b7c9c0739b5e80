//! Accepts connections, as many as the limit of open files allows.

use std::{io, sync::Arc, time::Duration};

use rustix::process::{Resource, getrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, sleep},
};

/// The pause after a connection could not be accepted, mostly because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const WARNING: Duration = Duration::from_secs(60);
/// Descriptors that are reserved for other things than connections: the log, the skills.
const RESERVED: u64 = 64;
/// Connections of the page and of commands: few are enough, and many only help somebody who wants to hold them all.
const MIN_LOCAL: usize = 16;
const MAX_LOCAL: usize = 512;

pub(crate) struct Accepting<'a, M> {
    listener: &'a TcpListener,
    places: Arc<Semaphore>,
    make_place: M,
    warned: Option<Instant>,
}

/// Returns how many connections of agents are allowed at once. Each may need another one to an upstream, and some
/// descriptors are needed besides.
pub(crate) fn max_connections() -> usize {
    let n_files = n_files();
    let n_local = max_local_connections() as u64;
    let n_free = n_files.saturating_sub((RESERVED + n_local).min(n_files / 2));
    usize::try_from(n_free / 2).map_or(Semaphore::MAX_PERMITS, |n| {
        n.clamp(1, Semaphore::MAX_PERMITS)
    })
}

/// Returns how many connections of the page and of commands are allowed at once. Agents' connections leave these
/// descriptors free.
pub fn max_local_connections() -> usize {
    usize::try_from(n_files() / 8).map_or(MAX_LOCAL, |n| n.clamp(MIN_LOCAL, MAX_LOCAL))
}

fn n_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

// === impl Accepting ===

impl<'a, M: Fn() -> bool> Accepting<'a, M> {
    /// Accepts at most `n_connections` at once. `make_place` is called when there are so many.
    pub(crate) fn new(listener: &'a TcpListener, n_connections: usize, make_place: M) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(n_connections)),
            make_place,
            warned: None,
        }
    }

    /// Accepts connections forever. Those beyond the limit wait in the system's queue.
    pub(crate) async fn run<F>(
        mut self,
        connections: &mut JoinSet<()>,
        serve: impl Fn(TcpStream) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        // For each accepted connection at most one is given up, which may take a moment to end.
        let mut makes_place = false;
        loop {
            if self.places.available_permits() == 0 && !makes_place {
                makes_place = (self.make_place)();
                if !makes_place {
                    self.warn("as many connections are open as descriptors allow: others wait");
                }
            }
            let accepted = tokio::select! {
                Some(_) = connections.join_next() => continue,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    makes_place = false;
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

    async fn accept(&self) -> io::Result<(TcpStream, Option<OwnedSemaphorePermit>)> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let (stream, _) = self.listener.accept().await?;
        // The semaphore is never closed.
        Ok((stream, place.ok()))
    }

    fn warn(&mut self, what: &str) {
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING) {
            self.warned = Some(Instant::now());
            tracing::warn!("{what}");
        }
    }
}

/// Returns whether the connection broke before it was accepted. Then the next one is not affected.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::advance;

    use super::*;

    /// Once, idle connections took every descriptor, and an accepted chat had none for its upstream.
    #[test]
    fn each_connection_leaves_a_descriptor_for_its_upstream_and_some_are_left_beside() {
        let n_files = n_files();
        let n_connections = max_connections() as u64;
        assert!(n_connections >= 1);
        let n_taken = n_connections.saturating_mul(2);
        let n_reserved = RESERVED + max_local_connections() as u64;
        assert!(
            n_taken <= n_files - n_reserved.min(n_files / 2),
            "{n_connections} of {n_files}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn that_there_is_no_place_is_said_once_a_minute() {
        let lines = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt().with_writer(Arc::new(lines.reopen().unwrap()));
        let _log = tracing::subscriber::set_default(log.finish());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut accepting = Accepting::new(&listener, 1, || false);
        let n_said = || fs::read_to_string(lines.path()).unwrap().lines().count();
        for n_warnings in [1, 2] {
            for _ in 0..10 {
                accepting.warn("no place");
                advance(ACCEPT_PAUSE).await;
            }
            assert_eq!(n_said(), n_warnings);
            advance(WARNING).await;
        }
    }
}
