//! A reply's body, of which the beginning may have been read already.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use metaclaw_dialects::rewrite::Rewrite;
use tokio::time::{timeout, timeout_at};

use crate::body::BoxError;

/// The most of an error's body that is read before it goes on to the agent.
const AHEAD: usize = 64 << 10;
/// How long the rest of an error's body may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an upstream sends: the same frames in the same order, whether they were looked at or not.
pub(crate) struct UpstreamBody {
    ahead: VecDeque<Result<Frame<Bytes>, BoxError>>,
    rest: Incoming,
    /// Ends when no more of it will come.
    end: Option<End>,
    /// How its bytes are to be changed on their way to the agent.
    rewrite: Option<Box<dyn Rewrite>>,
}

type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The server does not answer any more, and has not closed the connection either.
#[derive(Debug, thiserror::Error)]
#[error("the policy model's server does not answer any more")]
struct NoMore;

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody")
            .field("n_ahead", &self.ahead.len())
            .field("rewrite", &self.rewrite.is_some())
            .finish_non_exhaustive()
    }
}

// === impl UpstreamBody ===

impl UpstreamBody {
    /// The beginning of an error: up to its end or [`AHEAD`], waited for no longer than [`PATIENCE`].
    pub(crate) async fn peek(&mut self) -> Bytes {
        let until = tokio::time::Instant::now() + PATIENCE;
        while self.n_ahead() < AHEAD && !self.is_broken() {
            let Ok(Some(frame)) = timeout_at(until, self.next()).await else {
                break;
            };
            self.ahead.push_back(frame);
        }
        self.read_ahead()
    }

    /// All of it, up to `limit`; `idle` is the longest silence. Says why, where that cannot be had.
    pub(crate) async fn read(
        &mut self,
        limit: usize,
        idle: Option<Duration>,
    ) -> Result<Bytes, String> {
        loop {
            if let Some(Err(error)) = self.ahead.back() {
                return Err(format!("it broke off: {error}"));
            }
            if self.n_ahead() > limit {
                return Err(format!("it is longer than {} MiB", limit >> 20));
            }
            let frame = match idle {
                None => self.next().await,
                Some(idle) => match timeout(idle, self.next()).await {
                    Ok(frame) => frame,
                    Err(_) => return Err(format!("nothing of it came for {idle:?}")),
                },
            };
            match frame {
                Some(frame) => self.ahead.push_back(frame),
                None => return Ok(self.read_ahead()),
            }
        }
    }

    /// What is missing of it does not come once `end` is over.
    pub(super) fn breaks_off(&mut self, end: End) {
        self.end = Some(end);
    }

    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        poll_fn(|cx| self.poll_rest(cx)).await
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.rest).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let end = self.end.as_mut();
        let is_over = end.is_some_and(|end| end.as_mut().poll(cx).is_ready());
        if is_over {
            self.end = None;
            return Poll::Ready(Some(Err(NoMore.into())));
        }
        Poll::Pending
    }

    /// Has its bytes changed on their way.
    pub(crate) fn rewrite(&mut self, rewrite: Box<dyn Rewrite>) {
        self.rewrite = Some(rewrite);
    }

    /// How its bytes are to be changed.
    pub(crate) fn take_rewrite(&mut self) -> Option<Box<dyn Rewrite>> {
        self.rewrite.take()
    }

    fn data(&self) -> impl Iterator<Item = &Bytes> {
        let frames = self.ahead.iter().filter_map(|frame| frame.as_ref().ok());
        frames.filter_map(Frame::data_ref)
    }

    fn n_ahead(&self) -> usize {
        self.data().map(Bytes::len).sum()
    }

    fn read_ahead(&self) -> Bytes {
        self.data().flatten().copied().collect()
    }

    fn is_broken(&self) -> bool {
        matches!(self.ahead.back(), Some(Err(_)))
    }
}

impl From<Incoming> for UpstreamBody {
    fn from(rest: Incoming) -> Self {
        Self {
            ahead: VecDeque::new(),
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
        match self.ahead.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => self.poll_rest(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_broken() {
            // Less than was announced, which hyper would take for an error of ours.
            return SizeHint::default();
        }
        let n_ahead = self.n_ahead() as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(n_ahead));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(n_ahead));
        }
        hint
    }
}
