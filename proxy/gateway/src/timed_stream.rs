//! A connection with a deadline for its writes.
//!
//! A slow reader slows the upstream down: while the agent reads nothing, the proxy reads nothing from the upstream and
//! stores nothing. An agent that keeps its connection without reading would hold both streams forever, so its
//! connection is closed after [`WRITE_TIMEOUT`].

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

/// The longest time without progress of a write. A reader of 1 KB/s opens its window about once a minute, because
/// systems do so for a whole segment of the loopback's 64 KB.
const WRITE_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, thiserror::Error)]
#[error("the agent takes nothing of its reply")]
struct WriteStalled;

#[derive(Debug)]
pub(crate) struct TimedStream<S> {
    stream: S,
    write_timer: Option<Pin<Box<Sleep>>>,
    write_is_blocked: bool,
}

// === impl TimedStream ===

impl<S> TimedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            write_timer: None,
            write_is_blocked: false,
        }
    }

    fn poll_write_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.write_is_blocked = false;
            return write;
        }
        let timer = self
            .write_timer
            .get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        if !self.write_is_blocked {
            self.write_is_blocked = true;
            timer.as_mut().reset(Instant::now() + WRITE_TIMEOUT);
        }
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, WriteStalled)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.poll_write_timeout(cx, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.poll_write_timeout(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(cx);
        self.poll_write_timeout(cx, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.poll_write_timeout(cx, shutdown)
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
        let mut gateway = TimedStream::new(gateway);
        let slow = async {
            for _ in 0..5 {
                sleep(WRITE_TIMEOUT / 2).await;
                agent.read_u8().await.unwrap();
            }
        };
        let bytes = vec![0; 1_024 + 5];
        let (written, ()) = tokio::join!(gateway.write_all(&bytes), slow);
        written.unwrap();
        let began = Instant::now();
        let error = timeout(2 * WRITE_TIMEOUT, gateway.write_all(b"x")).await;
        let error = error.expect("an end").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());
    }
}
