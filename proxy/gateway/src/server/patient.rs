//! A connection whose writes do not wait for ever.
//!
//! A slow reader presses back: nothing is read from the upstream while the agent takes nothing, and
//! nothing is kept here. One that takes nothing at all, and yet keeps its connection, would hold its
//! stream and the upstream's for ever; it is given up after [`STALL`]. A single stream of HTTP/2 is
//! `unread`'s.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// The longest that a write may make no progress. A reader of 1 KB/s opens its window about once a
/// minute, as systems do so for a whole segment of the loopback's 64 KB.
pub(super) const STALL: Duration = Duration::from_secs(300);

/// Why a reply is given up.
#[derive(Debug, thiserror::Error)]
#[error("the agent takes nothing of its reply")]
pub(super) struct TakesNothing;

/// The connection.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    /// The end of the patience; made when it is first needed.
    end: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

// === impl Patient ===

impl<S> Patient<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            end: None,
            is_waiting: false,
        }
    }

    /// A write that goes on is passed on; one that waits, waits for so long.
    fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.is_waiting = false;
            return write;
        }
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(STALL)));
        if !self.is_waiting {
            self.is_waiting = true;
            end.as_mut().reset(Instant::now() + STALL);
        }
        ready!(end.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, TakesNothing)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.bounded(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(cx);
        self.bounded(cx, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(cx, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::timeout,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (gateway, mut agent) = duplex(1_024);
        let mut gateway = Patient::new(gateway);
        let slow = async {
            for _ in 0..5 {
                sleep(STALL / 2).await;
                agent.read_u8().await.unwrap();
            }
        };
        let bytes = vec![0; 1_024 + 5];
        let (written, ()) = tokio::join!(gateway.write_all(&bytes), slow);
        written.unwrap();
        let began = Instant::now();
        let error = timeout(2 * STALL, gateway.write_all(b"x")).await;
        let error = error.expect("an end").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), STALL.as_secs());
    }
}
