//! A request's body, read by whoever has it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncRead;

use super::link::Link;
use crate::error::Error;

/// A request's body as it comes.
#[derive(Debug)]
pub struct Incoming<S> {
    /// Gone with the body's end.
    link: Option<Arc<Link<S>>>,
    hint: SizeHint,
}

// === impl Incoming ===

impl<S> Incoming<S> {
    /// The body that comes on `link` now.
    pub(super) fn new(link: &Arc<Link<S>>) -> Self {
        let link_now = link.lock();
        let is_over = link_now.decoder.is_over();
        Self {
            hint: link_now.decoder.size_hint(),
            link: (!is_over).then(|| Arc::clone(link)),
        }
    }
}

impl<S: AsyncRead + Unpin> Body for Incoming<S> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let Some(link) = &this.link else {
            return Poll::Ready(None);
        };
        let mut now = link.lock();
        let frame = ready!(now.poll_frame(cx));
        this.hint = now.decoder.size_hint();
        if now.decoder.is_over() || matches!(frame, Some(Err(_))) {
            now.let_go(Some(cx.waker()));
            drop(now);
            this.link = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.link.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

impl<S> Drop for Incoming<S> {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.lock().let_go(None);
        }
    }
}
