//! Bodies, as every room passes them on.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

/// A body on its way, whatever it is made of.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
/// Whatever broke a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body, and what is given back when it is dropped.
struct Guarded<G> {
    body: Body,
    _guard: G,
}

/// A whole body of our own.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Keeps `guard` for as long as the body is there.
pub(crate) fn guarded(body: Body, guard: impl Send + Unpin + 'static) -> Body {
    Body::new(Guarded {
        body,
        _guard: guard,
    })
}

// === impl Guarded ===

impl<G: Unpin> http_body::Body for Guarded<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
