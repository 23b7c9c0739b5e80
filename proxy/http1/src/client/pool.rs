//! Connections that rest, to be asked again.

use std::{
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use super::Connection;
use crate::wire::Wire;

/// Connections that rest, each to one of a few servers. Cheap to clone.
pub struct Pool<S>(Arc<Resting<S>>);

struct Resting<S> {
    /// The one that was used last is last, and used next.
    each: Mutex<Vec<Rests<S>>>,
    most: usize,
    longest: Duration,
}

/// A connection that rests.
struct Rests<S> {
    io: S,
    server: Arc<str>,
    since: Instant,
}

/// Where a connection rests.
pub(super) struct Home<S> {
    pool: Pool<S>,
    server: Arc<str>,
}

// === impl Pool ===

impl<S: AsyncRead + AsyncWrite + Unpin> Pool<S> {
    /// For so many connections at most, none of which rests for longer than that.
    pub fn new(most: usize, longest: Duration) -> Self {
        Self(Arc::new(Resting {
            each: Mutex::default(),
            most,
            longest,
        }))
    }

    /// A connection of which nothing has been read or written.
    pub fn connection(&self, server: &Arc<str>, io: S) -> Connection<S> {
        Connection {
            io,
            home: Home {
                pool: self.clone(),
                server: Arc::clone(server),
            },
        }
    }

    /// One that rests, and that the server has not closed.
    pub async fn resting(&self, server: &str) -> Option<Connection<S>> {
        poll_fn(|cx| Poll::Ready(self.take(server, cx))).await
    }

    fn take(&self, server: &str, cx: &mut Context<'_>) -> Option<Connection<S>> {
        loop {
            let rests = {
                let mut each = self.lock();
                let at = each.iter().rposition(|rests| *rests.server == *server)?;
                each.remove(at)
            };
            let is_usable = rests.since.elapsed() <= self.0.longest;
            if let Some(rests) = rests.alive(cx).filter(|_| is_usable) {
                return Some(self.connection(&rests.server, rests.io));
            }
        }
    }

    /// Closes those that rest for too long or that the server has closed.
    pub fn sweep(&self) {
        let each = std::mem::take(&mut *self.lock());
        let mut cx = Context::from_waker(Waker::noop());
        let kept = each.into_iter().filter_map(|rests| {
            let is_usable = rests.since.elapsed() <= self.0.longest;
            rests.alive(&mut cx).filter(|_| is_usable)
        });
        let kept: Vec<_> = kept.collect();
        // Those that came meanwhile were used later.
        let mut each = self.lock();
        each.splice(..0, kept);
        let n_over = each.len().saturating_sub(self.0.most);
        each.drain(..n_over);
    }

    /// How many there are.
    pub fn n_resting(&self) -> usize {
        self.lock().len()
    }
}

impl<S> Pool<S> {
    fn lock(&self) -> MutexGuard<'_, Vec<Rests<S>>> {
        self.0.each.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for Pool<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("n_resting", &self.lock().len())
            .finish_non_exhaustive()
    }
}

// === impl Rests ===

impl<S: AsyncRead + Unpin> Rests<S> {
    /// The same, unless the server has closed it or said something unasked.
    fn alive(self, cx: &mut Context<'_>) -> Option<Self> {
        let mut wire = Wire::new(self.io, BytesMut::new());
        let is_alive = wire.poll_gone(cx).is_pending() && wire.input.is_empty();
        is_alive.then_some(Self {
            io: wire.io,
            ..self
        })
    }
}

// === impl Home ===

impl<S> Home<S> {
    /// Lets a connection rest.
    pub(super) fn rest(self, io: S) {
        let mut each = self.pool.lock();
        if each.len() < self.pool.0.most {
            each.push(Rests {
                io,
                server: self.server,
                since: Instant::now(),
            });
        }
    }
}

impl<S> fmt::Debug for Home<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Home").field(&self.server).finish()
    }
}
