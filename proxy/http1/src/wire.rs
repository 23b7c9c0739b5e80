//! A connection's bytes, in.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::{decoder::Decoder, error::Error};

/// What is read at once at most, and at least where reading goes on.
const MOST: usize = 64 << 10;
/// What is read at once in the beginning of a connection.
const FIRST: usize = 8 << 10;
/// Less room than this is not read into.
const LEAST: usize = 2 << 10;
/// What may have come of the next request while one is served; beyond, the system holds it.
const AHEAD: usize = 8 << 10;

/// A connection, and what has been read of it and not been taken.
///
/// There is a buffer only while it holds something: what a connection that rests would keep, another one
/// uses, while the processor still has it at hand.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    pub io: S,
    pub input: BytesMut,
    /// How much is read next.
    next: usize,
    /// How much came since a message began.
    n_come: usize,
}

// === impl Wire ===

impl<S> Wire<S> {
    /// Lets go of a buffer of which all was taken: a reply may take its time.
    pub(crate) fn tidy(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + Unpin> Wire<S> {
    /// A connection of which `input` has been read.
    pub(crate) fn new(io: S, input: BytesMut) -> Self {
        Self {
            io,
            input,
            next: FIRST,
            n_come: 0,
        }
    }

    /// The same, where much comes at once.
    pub(crate) fn wide(io: S, input: BytesMut) -> Self {
        Self {
            io,
            input,
            next: MOST,
            n_come: 0,
        }
    }

    /// Another message begins. It is mostly a little longer than the one before it: a buffer that holds it
    /// at once, and not much more.
    pub(crate) fn begin(&mut self) {
        if self.n_come > 0 {
            let expected = self.n_come.saturating_add(self.n_come / 8);
            self.next = expected.clamp(FIRST, MOST).next_multiple_of(FIRST);
            self.n_come = 0;
        }
    }

    /// Nothing has come since the message began: what is there came with the one before it.
    pub(crate) fn is_new(&self) -> bool {
        self.n_come == 0
    }

    /// Reads more. `false`: the other end sends no more.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.input.is_empty() {
            self.input = BytesMut::with_capacity(self.next);
        } else if self.input.capacity() - self.input.len() < LEAST {
            self.input.reserve(self.next);
        }
        let room = self.input.capacity() - self.input.len();
        let read = poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input);
        self.tidy();
        let n_bytes = ready!(read)?;
        self.n_come += n_bytes;
        if n_bytes == room {
            self.next = (2 * self.next).min(MOST);
        }
        Poll::Ready(Ok(n_bytes > 0))
    }

    /// The next of a body.
    pub(crate) fn poll_frame(
        &mut self,
        decoder: &mut Decoder,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            match decoder.take(&mut self.input) {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if decoder.is_over() => return Poll::Ready(None),
                Ok(None) => {}
                Err(malformed) => return Poll::Ready(Some(Err(malformed.into()))),
            }
            match ready!(self.poll_fill(cx)) {
                Ok(true) => {}
                Ok(false) => {
                    if let Err(error) = decoder.end() {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    /// Ready when the other end has gone, while it is not its turn to say anything.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.input.len() < AHEAD {
            let mut few = [0; 512];
            let mut few = ReadBuf::new(&mut few);
            match ready!(Pin::new(&mut self.io).poll_read(cx, &mut few)) {
                Ok(()) if few.filled().is_empty() => return Poll::Ready(()),
                Ok(()) => self.input.extend_from_slice(few.filled()),
                Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}
