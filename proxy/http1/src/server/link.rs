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
    /// The client waits to be told to send the body,
    pub expects: bool,
    /// and should be told now.
    pub is_asked_for: bool,
    /// The connection's task, when it waits for whoever has the body.
    waits: Option<Waker>,
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
            expects: false,
            is_asked_for: false,
            waits: None,
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
        self.expects = expects;
        self.is_asked_for = false;
        self.decoder = decoder;
    }

    /// Nobody has the body any more; `own` is the task that knows.
    pub(super) fn let_go(&mut self, own: Option<&Waker>) {
        self.is_held = false;
        self.wake(own);
    }

    /// Has the connection's task woken when the body's reader has done something.
    pub(super) fn wait(&mut self, waker: &Waker) {
        match &mut self.waits {
            Some(waits) => waits.clone_from(waker),
            waits => *waits = Some(waker.clone()),
        }
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
        if self.expects && self.wire.input.is_empty() {
            self.expects = false;
            self.is_asked_for = true;
            self.wake(None);
        }
        self.wire.poll_frame(&mut self.decoder, cx)
    }
}
