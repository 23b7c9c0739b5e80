//! A reply's body. Its beginning may have been read already.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use metaclaw_dialects::rewrite::Rewrite;
use tokio::time::{Instant, timeout, timeout_at};

use crate::body::{BoxError, longer};

const MAX_PEEK: usize = 64 << 10;
const PEEK_DEADLINE: Duration = Duration::from_secs(5);

type BodyEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct UpstreamBody {
    ahead: Vec<u8>,
    /// What came after `ahead`: trailers or an error.
    next: Option<Result<Frame<Bytes>, BoxError>>,
    rest: Incoming,
    end: Option<BodyEnd>,
    pub(crate) rewrite: Option<Box<dyn Rewrite>>,
}

/// The server does not answer any more, and has not closed the connection either.
#[derive(Debug, thiserror::Error)]
#[error("the policy model's server does not answer any more")]
struct NoMore;

// === impl UpstreamBody ===

impl UpstreamBody {
    pub(crate) async fn peek(&mut self) -> Bytes {
        let until = Instant::now() + PEEK_DEADLINE;
        while self.ahead.len() < MAX_PEEK && timeout_at(until, self.advance()).await == Ok(true) {}
        Bytes::copy_from_slice(&self.ahead)
    }

    /// Reads all of it, up to `limit`. `idle` is the longest silence. Returns the reason if that is impossible.
    pub(crate) async fn read_whole(
        &mut self,
        limit: usize,
        idle: Option<Duration>,
    ) -> Result<Bytes, String> {
        let idle = idle.unwrap_or(Duration::MAX);
        loop {
            let has_more = timeout(idle, self.advance()).await;
            let has_more = has_more.map_err(|_| format!("nothing of it came for {idle:?}"))?;
            if let Some(Err(error)) = &self.next {
                return Err(format!("it broke off: {error}"));
            }
            if self.ahead.len() > limit {
                return Err(format!("it is longer than {} MiB", limit >> 20));
            }
            if !has_more {
                return Ok(Bytes::copy_from_slice(&self.ahead));
            }
        }
    }

    /// Reads one frame ahead. Returns whether there may be more.
    async fn advance(&mut self) -> bool {
        let frame = poll_fn(|cx| self.poll_rest(cx)).await;
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => self.ahead.extend_from_slice(&data),
            Some(Ok(Err(trailers))) => self.next = Some(Ok(trailers)),
            Some(Err(error)) => self.next = Some(Err(error)),
            None => return false,
        }
        self.next.is_none()
    }

    pub(super) fn breaks_off(&mut self, end: BodyEnd) {
        self.end = Some(end);
    }

    pub(crate) fn replace(&mut self, whole: Vec<u8>) {
        (self.ahead, self.next) = (whole, None);
    }

    pub(crate) fn rewrite(&mut self, rewrite: Box<dyn Rewrite>) {
        self.rewrite = Some(rewrite);
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.rest).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let end = self.end.as_mut();
        if end.is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            self.end = None;
            return Poll::Ready(Some(Err(NoMore.into())));
        }
        Poll::Pending
    }
}

impl From<Incoming> for UpstreamBody {
    fn from(rest: Incoming) -> Self {
        Self {
            ahead: Vec::new(),
            next: None,
            rest,
            end: None,
            rewrite: None,
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.ahead);
            return Poll::Ready(Some(Ok(Frame::data(ahead.into()))));
        }
        match self.next.take() {
            Some(next) => Poll::Ready(Some(next)),
            None => self.poll_rest(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.next.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if matches!(self.next, Some(Err(_))) {
            // With fewer bytes than announced, hyper would report an error of ours.
            return SizeHint::default();
        }
        longer(&self.rest.size_hint(), self.ahead.len())
    }
}
