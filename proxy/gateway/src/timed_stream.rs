//! A connection with deadlines for its first bytes and its writes.
//!
//! hyper-util reads a connection's first bytes to distinguish HTTP/1.1 from HTTP/2, and has no deadline for that.
//!
//! A slow reader slows the upstream down: while the agent reads nothing, the proxy reads nothing from the upstream and
//! stores nothing. An agent that reads nothing at all but keeps its connection would hold its stream and the upstream's
//! forever, so it is given up after [`WRITE_TIMEOUT`]. A single stream of HTTP/2 is handled in `stalled_streams`.

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
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(300);
/// The first bytes of a client of HTTP/2 (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The reply is given up because the agent reads nothing.
#[derive(Debug, thiserror::Error)]
#[error("the agent takes nothing of its reply")]
pub(crate) struct WriteStalled;

#[derive(Debug)]
pub(crate) struct TimedStream<S> {
    stream: S,
    /// Present while the HTTP version is not known.
    undecided: Option<Undecided>,
    write_timer: Option<Pin<Box<Sleep>>>,
    write_is_blocked: bool,
}

#[derive(Debug)]
struct Undecided {
    /// Number of bytes of [`PREFACE`] that were read.
    n_read: usize,
    timer: Pin<Box<Sleep>>,
}

// === impl TimedStream ===

impl<S> TimedStream<S> {
    /// `first_bytes` is the deadline for the first bytes.
    pub(crate) fn new(stream: S, first_bytes: Duration) -> Self {
        Self {
            stream,
            undecided: Some(Undecided {
                n_read: 0,
                timer: Box::pin(sleep(first_bytes)),
            }),
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
        let n_filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some(undecided) = &mut self.undecided else {
            return read;
        };
        if read.is_ready() {
            if undecided.is_decided_by(&buffer.filled()[n_filled..]) {
                self.undecided = None;
            }
            return read;
        }
        ready!(undecided.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
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

// === impl Undecided ===

impl Undecided {
    /// Processes bytes that were read. None at all means that the connection ended.
    fn is_decided_by(&mut self, read: &[u8]) -> bool {
        let expected = &PREFACE[self.n_read..];
        if read.is_empty() || read.len() >= expected.len() || !expected.starts_with(read) {
            return true;
        }
        self.n_read += read.len();
        false
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::timeout,
    };

    use super::*;

    const FIRST_BYTES: Duration = Duration::from_secs(75);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (gateway, mut agent) = duplex(1_024);
        let mut gateway = TimedStream::new(gateway, FIRST_BYTES);
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

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_say_which_http_it_speaks_is_given_up() {
        for (sent, is_decided) in [
            ("", false),
            ("P", false),
            ("PRI * HTTP/2.0\r\n\r\n", false),
            ("PRINT /", true),
            ("GET", true),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
        ] {
            for piece in 1..=sent.len().max(1) {
                let (gateway, mut agent) = duplex(1_024);
                let mut gateway = TimedStream::new(gateway, FIRST_BYTES);
                for piece in sent.as_bytes().chunks(piece) {
                    agent.write_all(piece).await.unwrap();
                    gateway.read_exact(&mut vec![0; piece.len()]).await.unwrap();
                }
                let rest = timeout(10 * FIRST_BYTES, gateway.read_u8()).await;
                assert_eq!(rest.is_err(), is_decided, "{sent:?} by {piece}");
            }
        }
    }
}
