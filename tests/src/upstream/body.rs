//! A reply's body: its pieces, how it ends, and whether a client gave it up.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use axum::body::{Body, Bytes};
use futures_util::Stream;

use super::notes::{Shared, lock};

/// What comes after the last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// The connection breaks off.
    Cut,
    Silence,
}

/// Records the time at which an unfinished reply was dropped.
pub(super) struct Watch {
    shared: Arc<Shared>,
    is_over: bool,
}

struct Playing {
    pieces: std::vec::IntoIter<Bytes>,
    ending: Ending,
    /// The earlier pieces have had time to be sent.
    is_flushed: bool,
    watch: Watch,
}

/// Creates a body of these pieces.
pub(super) fn body(pieces: Vec<Bytes>, ending: Ending, shared: &Arc<Shared>) -> Body {
    Body::from_stream(Playing {
        pieces: pieces.into_iter(),
        ending,
        is_flushed: false,
        watch: Watch::new(shared),
    })
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            is_over: false,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_over {
            lock(&self.shared.hang_ups).push(SystemTime::now());
        }
    }
}

// === impl Playing ===

impl Stream for Playing {
    type Item = Result<Bytes, io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(piece) = self.pieces.next() {
            return Poll::Ready(Some(Ok(piece)));
        }
        match self.ending {
            Ending::Silence => Poll::Pending,
            Ending::Whole => {
                self.watch.is_over = true;
                Poll::Ready(None)
            }
            // An error at once would discard what the server has not written yet.
            Ending::Cut if !self.is_flushed => {
                self.is_flushed = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ending::Cut => {
                self.watch.is_over = true;
                Poll::Ready(Some(Err(io::Error::other("cut, as the script says"))))
            }
        }
    }
}
