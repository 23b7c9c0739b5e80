//! Bodies of requests, read whole: bounded each by `proxy.max_body`, and all together by
//! `proxy.body_memory`. Both bounds hold for what has really come; what a client announces takes
//! nothing from the others. What only passes is not held, and bounded in time alone.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metaclaw_chat::{Size, Span};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::{
    capture::{Budget, Held},
    config::ProxyConfig,
    metrics::Metrics,
    refusal::Refusal,
    relay::BoxError,
};

/// How long, and how much of, a body that is refused is read on and thrown away: a client that is
/// cut off while it writes never sees the answer that says why.
const PATIENCE: Duration = Duration::from_secs(5);
const DISCARDED: u64 = 256 << 20;
/// The longest silence inside a request's body.
const STALL: Duration = Duration::from_secs(60);
/// The most that is set aside for a body before any of it has come.
const EXPECTED: u64 = 64 << 10;
/// A body that came at once is kept where it was read, if that is most of the buffer.
const UNCOPIED: usize = 32 << 10;

/// The bounds on bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    max_body: Size,
    memory: Size,
    budget: Budget,
}

/// A body as far as it has come, and its part of the memory: given back with the last reference.
struct Growing {
    bytes: Vec<u8>,
    held: Held,
}

/// A body that came in one piece, and its part of the memory.
struct Whole {
    bytes: Bytes,
    _held: Held,
}

/// A body that passes as it comes, and is given up when it stops coming: the upstream's connection
/// and a place of `proxy.max_streams` would wait with it.
pub(crate) struct Passing<B> {
    body: B,
    /// The end of the patience; made when it is first needed.
    end: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

// === impl Bodies ===

impl Bodies {
    pub(crate) fn new(config: &ProxyConfig, metrics: &Arc<Metrics>) -> Self {
        let (max_body, memory) = (config.max_body, config.body_memory);
        let budget = Budget::new(memory.0, Arc::clone(metrics), |metrics| &metrics.body_bytes);
        Self {
            max_body,
            memory,
            budget,
        }
    }

    /// Reads a body to its end.
    pub(crate) async fn read(&self, mut body: Incoming) -> Result<Bytes, Refusal> {
        match self.try_read(&mut body).await {
            Ok(bytes) => Ok(bytes),
            Err(refusal) => {
                if matches!(refusal, Refusal::TooLarge { .. } | Refusal::NoRoom { .. }) {
                    discard(body).await;
                }
                Err(refusal)
            }
        }
    }

    async fn try_read(&self, body: &mut Incoming) -> Result<Bytes, Refusal> {
        let limit = self.max_body;
        let hint = body.size_hint();
        let given = hint.exact();
        if given.is_some_and(|given| given > limit.0) {
            return Err(Refusal::TooLarge { limit, given });
        }
        let no_room = || Refusal::NoRoom { limit: self.memory };
        let expected = usize::try_from(hint.lower().min(EXPECTED)).unwrap_or(0);
        let mut growing = Growing {
            bytes: Vec::new(),
            held: self.budget.nothing(),
        };
        loop {
            let frame = match timeout(STALL, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) => return Err(Refusal::BodyCut),
                Ok(None) => return Ok(growing.into_bytes()),
                Err(_) => return Err(Refusal::BodyStalled { after: Span(STALL) }),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if (growing.bytes.len() + data.len()) as u64 > limit.0 {
                let given = None;
                return Err(Refusal::TooLarge { limit, given });
            }
            if growing.bytes.is_empty() {
                if data.len() >= UNCOPIED && body.is_end_stream() {
                    return growing.whole(data).ok_or_else(no_room);
                }
                growing.reserve(expected).ok_or_else(no_room)?;
            }
            growing.push(&data, limit).ok_or_else(no_room)?;
        }
    }
}

async fn discard(mut body: Incoming) {
    let all = async {
        let mut n_bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if n_bytes > DISCARDED {
                break;
            }
        }
    };
    // Whether it ended or went on is all the same.
    let _ = timeout(PATIENCE, all).await;
}

// === impl Growing ===

impl Growing {
    /// Room for `capacity` bytes in all; `None` where there is no more memory.
    fn reserve(&mut self, capacity: usize) -> Option<()> {
        let more = capacity.saturating_sub(self.bytes.capacity());
        if more > 0 {
            self.held.grow(more as u64).then_some(())?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        Some(())
    }

    /// Takes more of a body that is never longer than `limit`.
    fn push(&mut self, data: &[u8], limit: Size) -> Option<()> {
        let len = self.bytes.len() + data.len();
        if len > self.bytes.capacity() {
            // Grown by halves of its own length at least, so that copying stays cheap.
            let limit = usize::try_from(limit.0).unwrap_or(usize::MAX);
            let by_halves = self.bytes.capacity() * 3 / 2;
            self.reserve(len.max(by_halves.min(limit)))?;
        }
        self.bytes.extend_from_slice(data);
        Some(())
    }

    /// A body that has come in one piece.
    fn whole(self, bytes: Bytes) -> Option<Bytes> {
        let mut held = self.held;
        let has_room = held.grow(bytes.len() as u64);
        has_room.then(|| Bytes::from_owner(Whole { bytes, _held: held }))
    }

    fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Growing {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// === impl Passing ===

impl<B> Passing<B> {
    pub(crate) fn new(body: B) -> Self {
        Self {
            body,
            end: None,
            is_waiting: false,
        }
    }

    /// The patience with a silent client. It begins when a frame is waited for: where the upstream
    /// takes nothing, none is.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(STALL)));
        if !self.is_waiting {
            self.is_waiting = true;
            end.as_mut().reset(Instant::now() + STALL);
        }
        ready!(end.as_mut().poll(cx));
        Poll::Ready(Refusal::BodyStalled { after: Span(STALL) }.into())
    }
}

impl<B> Body for Passing<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.is_waiting = false;
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => self.poll_patience(cx).map(|stalled| Some(Err(stalled))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::unfold;
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_passes_may_be_slow_and_may_not_stop() {
        // Each frame comes later than the one before: after 0, 12, 48 and 108 s.
        let frames = unfold(0, |n: u32| async move {
            sleep(n * n * STALL / 5).await;
            let frame = Frame::data(Bytes::from_static(b"x"));
            Some((Ok::<_, Infallible>(frame), n + 1))
        });
        let mut body = Passing::new(StreamBody::new(Box::pin(frames)));
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_ok());
        // The upstream's own pause is not the client's.
        sleep(2 * STALL).await;
        assert!(body.frame().await.unwrap().is_ok());
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "nothing of the request body came for 1 min"
        );
    }
}
