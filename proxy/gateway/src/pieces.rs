//! A body in pieces: parts of a request as they came, with ours between them, none of it copied.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Bytes, one piece behind the other. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces {
    each: VecDeque<Bytes>,
    n_bytes: usize,
}

// === impl Pieces ===

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.n_bytes
    }

    /// All of it in one piece: copied, unless it is one.
    pub(crate) fn joined(&self) -> Bytes {
        match self.each.as_slices() {
            ([], _) => Bytes::new(),
            ([one], []) => one.clone(),
            (front, back) => [front, back].concat().concat().into(),
        }
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        vec![bytes].into()
    }
}

impl From<Vec<Bytes>> for Pieces {
    fn from(each: Vec<Bytes>) -> Self {
        Self {
            n_bytes: each.iter().map(Bytes::len).sum(),
            each: each.into(),
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.each.pop_front();
        self.n_bytes -= piece.as_ref().map_or(0, Bytes::len);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.each.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.n_bytes as u64)
    }
}
