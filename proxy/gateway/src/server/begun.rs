//! Which HTTP a connection speaks, and what was read to know it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What a client of HTTP/2 says first (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection of which the beginning has been read.
#[derive(Debug)]
pub(super) struct Begun<S> {
    pub read: BytesMut,
    pub io: S,
}

// === impl Begun ===

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Reads until it is known what the client speaks; `None` where it says nothing.
    pub(super) async fn of(mut io: S) -> io::Result<Option<Self>> {
        let mut read = BytesMut::with_capacity(PREFACE.len());
        loop {
            let n_bytes = io.read_buf(&mut read).await?;
            if n_bytes == 0 && read.is_empty() {
                return Ok(None);
            }
            let may_become = read.len() < PREFACE.len() && PREFACE.starts_with(&read);
            if n_bytes == 0 || !may_become {
                return Ok(Some(Self { read, io }));
            }
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        self.read.starts_with(PREFACE)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let n_bytes = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..n_bytes]);
        self.read.advance(n_bytes);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn what_is_spoken_is_known_however_it_comes_and_nothing_of_it_is_lost() {
        let http1: &[u8] = b"PRINT /x HTTP/1.1\r\nhost: x\r\n\r\n";
        let http2 = [PREFACE, b"more"].concat();
        for (said, is_http2) in [(http1, false), (&http2, true), (b"P", false), (b"", false)] {
            for piece in 1..=said.len().max(1) {
                let (mut client, server) = duplex(1);
                let say = async {
                    for piece in said.chunks(piece) {
                        client.write_all(piece).await.unwrap();
                    }
                    drop(client);
                };
                let hear = async {
                    let mut begun = Begun::of(server).await.unwrap()?;
                    let is_http2 = begun.is_http2();
                    let mut heard = Vec::new();
                    begun.read_to_end(&mut heard).await.unwrap();
                    Some((heard, is_http2))
                };
                let ((), heard) = tokio::join!(say, hear);
                let expected = (!said.is_empty()).then(|| (said.to_vec(), is_http2));
                assert_eq!(heard, expected);
            }
        }
    }
}
