//! What a connection and the body of the request on it share.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::io::AsyncRead;

use crate::{decoder::Decoder, error::Error, wire::Wire};

/// A connection. It is locked for a read or a write, and nothing that is not ours runs meanwhile.
#[derive(Debug)]
pub(super) struct Link<S>(Mutex<Now<S>>);

/// How a connection is just now.
#[derive(Debug)]
pub(super) struct Now<S> {
    pub wire: Wire<S>,
    /// Where the body of the request ends.
    pub decoder: Decoder,
    /// Somebody has the body, and reads when it is time to.
    pub is_held: bool,
    pub go_on: GoOn,
    /// The connection's task, when it waits for whoever has the body.
    waits: Option<Waker>,
    /// Whoever has the body, when it waits for more.
    reader: Option<Waker>,
    /// Nothing more is read for whoever has the body.
    is_left: bool,
}

/// Whether the client waits to be told to send the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoOn {
    Unasked,
    Awaited,
    /// Somebody wants the body: it is to be told now.
    Wanted,
}

// === impl Link ===

impl<S> Link<S> {
    pub(super) fn new(io: S, input: BytesMut) -> Self
    where
        S: AsyncRead + Unpin,
    {
        Self(Mutex::new(Now {
            wire: Wire::wide(io, input),
            decoder: Decoder::Over,
            is_held: false,
            go_on: GoOn::Unasked,
            waits: None,
            reader: None,
            is_left: false,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Now<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Now ===

impl<S> Now<S> {
    /// A request has begun.
    pub(super) fn begin(&mut self, decoder: Decoder, expects: bool) {
        self.is_held = !decoder.is_over();
        self.go_on = if expects {
            GoOn::Awaited
        } else {
            GoOn::Unasked
        };
        self.decoder = decoder;
        self.wire.tidy();
    }

    /// Nobody has the body any more; `own` is the task that knows.
    pub(super) fn let_go(&mut self, own: Option<&Waker>) {
        self.is_held = false;
        self.wire.tidy();
        self.wake(own);
    }

    /// The connection ends: what still comes is no longer for whoever has the body, who is to hear of it.
    #[must_use = "to be woken when the connection is no longer locked"]
    pub(super) fn leave(&mut self) -> Option<Waker> {
        self.is_left = true;
        self.reader.take()
    }

    /// Has the connection's task woken when the body's reader has done something.
    pub(super) fn wait(&mut self, waker: &Waker) {
        remember(&mut self.waits, waker);
    }

    fn wake(&mut self, own: Option<&Waker>) {
        let waits = self.waits.take();
        if let Some(waits) = waits.filter(|waits| !own.is_some_and(|own| own.will_wake(waits))) {
            waits.wake();
        }
    }

    /// Leaves out what has come of the body and nobody reads: whether that was all of it.
    pub(super) fn skip(&mut self) -> bool {
        while let Ok(Some(_)) = self.decoder.take(&mut self.wire.input) {}
        self.decoder.is_over()
    }
}

impl<S: AsyncRead + Unpin> Now<S> {
    /// The next of the body.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // Whoever has begun to send does not wait.
        if self.go_on == GoOn::Awaited {
            if self.wire.input.is_empty() {
                self.go_on = GoOn::Wanted;
                self.wake(None);
            } else {
                self.go_on = GoOn::Unasked;
            }
        }
        if self.is_left {
            return Poll::Ready(Some(Err(Error::Ended("a body"))));
        }
        let frame = self.wire.poll_frame(&mut self.decoder, cx);
        if frame.is_pending() {
            remember(&mut self.reader, cx.waker());
        }
        frame
    }
}

fn remember(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) => known.clone_from(waker),
        slot => *slot = Some(waker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Framing;

    #[test]
    fn no_buffer_is_kept_while_a_reply_is_waited_for() {
        let link = Link::new(tokio::io::empty(), BytesMut::with_capacity(64 << 10));
        let mut now = link.lock();
        now.begin(Framing::Length(0).into(), false);
        assert_eq!(now.wire.input.capacity(), 0, "without a body");
        now.wire.input.extend_from_slice(b"body");
        now.begin(Framing::Length(4).into(), false);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(now.poll_frame(&mut cx).is_ready());
        now.let_go(None);
        assert_eq!(now.wire.input.capacity(), 0, "behind a body");
    }
}
