//! A connection's bytes, out: a head and pieces of a body, in as few writes as may be.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// The most pieces that go out in one write.
const AT_ONCE: usize = 64;
/// A piece shorter than this is copied behind the one before it.
const SHORT: usize = 1 << 10;
/// What waits to be written at most, and a piece.
const FULL: usize = 64 << 10;

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Whole pieces, and between them what was copied.
    pieces: VecDeque<Bytes>,
    /// What was copied since the last whole piece.
    tail: Vec<u8>,
    /// How much of `tail` is written.
    n_written: usize,
    n_bytes: usize,
}

// === impl Output ===

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.n_bytes == 0
    }

    /// Nothing more should be put here before some of it is written.
    pub(crate) fn is_full(&self) -> bool {
        self.n_bytes >= FULL || self.pieces.len() >= AT_ONCE
    }

    /// Writes text, such as a head, to its end.
    pub(crate) fn write(&mut self, text: impl FnOnce(&mut Vec<u8>)) {
        let before = self.tail.len();
        text(&mut self.tail);
        self.n_bytes += self.tail.len() - before;
    }

    pub(crate) fn push(&mut self, data: Bytes) {
        if data.len() < SHORT {
            self.write(|tail| tail.extend_from_slice(&data));
            return;
        }
        if !self.tail.is_empty() {
            let mut tail = Bytes::from(std::mem::take(&mut self.tail));
            tail.advance(std::mem::take(&mut self.n_written));
            self.pieces.push_back(tail);
        }
        self.n_bytes += data.len();
        self.pieces.push_back(data);
    }

    /// A chunk of the chunked transfer coding; nothing where it would be the last.
    pub(crate) fn push_chunk(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.write(|tail| {
            // Nothing fails to be written to memory.
            let _ = write!(tail, "{:x}\r\n", data.len());
        });
        self.push(data);
        self.write(|tail| tail.extend_from_slice(b"\r\n"));
    }

    /// Writes until nothing is left.
    pub(crate) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let n_written = {
                let mut slices = [IoSlice::new(&[]); AT_ONCE];
                let tail = &self.tail[self.n_written..];
                let each = self.pieces.iter().map(|piece| &**piece);
                let n_slices = slices
                    .iter_mut()
                    .zip(each.chain(Some(tail).filter(|tail| !tail.is_empty())))
                    .map(|(slice, piece)| *slice = IoSlice::new(piece))
                    .count();
                let mut io = Pin::new(&mut *io);
                match &slices[..n_slices] {
                    [one] => ready!(io.as_mut().poll_write(cx, one))?,
                    many => ready!(io.as_mut().poll_write_vectored(cx, many))?,
                }
            };
            if n_written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written(n_written);
        }
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, mut n_bytes: usize) {
        self.n_bytes -= n_bytes;
        while let Some(piece) = self.pieces.front_mut() {
            if n_bytes < piece.len() {
                piece.advance(n_bytes);
                return;
            }
            n_bytes -= piece.len();
            self.pieces.pop_front();
        }
        self.n_written += n_bytes;
        if self.n_written == self.tail.len() {
            self.n_written = 0;
            self.tail.clear();
            // A connection that rests keeps room for a head, not for all that it ever copied.
            self.tail.shrink_to(SHORT);
        } else if self.n_written >= FULL {
            // Where something always waits, what is written would stay for ever.
            self.tail.drain(..self.n_written);
            self.n_written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_gone_though_something_always_waits() {
        let (mut writer, mut reader) = duplex(256);
        let mut output = Output::default();
        let mut cx = Context::from_waker(Waker::noop());
        for n in 0_u32..20_000 {
            output.push_chunk(Bytes::from(format!("event {n:05}\n")));
            let written = output.poll_write(&mut writer, &mut cx);
            assert!(n < 100 || written.is_pending());
            assert!(output.tail.len() < 3 * FULL, "{}", output.tail.len());
            // As much as is put in, but for the beginning.
            if n >= 100 {
                reader.read_exact(&mut [0; 17]).await.unwrap();
            }
        }
    }
}
