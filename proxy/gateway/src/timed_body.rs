//! A request's body with a deadline. If it stops arriving, or arrives too slowly, it is given up, because it holds a
//! permit of `proxy.max_streams` and, if it passes, a connection to an upstream.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use metaclaw_capture::Encoding;
use metaclaw_chat::{Size, Span};
use tokio::time::{Instant, Sleep, sleep};

use crate::body::BoxError;

const SILENCE: Duration = Duration::from_secs(60);
/// The time for a whole body, besides the time that it may take at [`LEAST_RATE`].
const GRACE: Duration = Duration::from_secs(120);
/// In bytes per second: a tenth of a bad telephone line.
const LEAST_RATE: u32 = 1 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the request body ended early")]
    Cut(#[source] BoxError),
    #[error("nothing of the request body came for {0}")]
    Stalled(Span),
    #[error("the request body comes too slowly: {came} in {waited}")]
    TooSlow { came: Size, waited: Span },
    #[error("the request body is larger than proxy.max_body, {limit}{}", size_given(*given))]
    TooLarge { limit: Size, given: Option<u64> },
    #[error(
        "content-encoding {given:?} of the request body cannot be undone: {error}; allowed are {}, x-gzip and identity, and at most three of them one after the other",
        Encoding::NAMES
    )]
    Encoding { given: String, error: io::Error },
    #[error(
        "no room for this request body just now: all together take at most proxy.body_memory, {limit}"
    )]
    NoRoom { limit: Size },
}

fn size_given(n_bytes: Option<u64>) -> String {
    n_bytes.map_or_else(String::new, |n| format!(": it has {n} bytes"))
}

/// The body with a deadline. Only the time in which a frame is awaited counts. If the reader pauses, the client is not
/// slow.
pub(crate) struct TimedBody<B> {
    body: B,
    n_bytes: u64,
    waited: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

// === impl TimedBody ===

impl<B> TimedBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self {
            body,
            n_bytes: 0,
            waited: Duration::ZERO,
            since: None,
            timer: None,
        }
    }

    pub(crate) fn into_inner(self) -> B {
        self.body
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let left = self.allowed().saturating_sub(self.waited);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(SILENCE)));
        if self.since.is_none() {
            let now = Instant::now();
            self.since = Some(now);
            timer.as_mut().reset(now + left.min(SILENCE));
        }
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(if left < SILENCE {
            BodyError::TooSlow {
                came: Size(self.n_bytes),
                waited: Span(self.waited + left),
            }
        } else {
            BodyError::Stalled(Span(SILENCE))
        })
    }

    fn allowed(&self) -> Duration {
        GRACE + Duration::from_secs(self.n_bytes / u64::from(LEAST_RATE))
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.poll_timeout(cx).map(|error| Some(Err(error)));
        };
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
        if let Some(Ok(frame)) = &frame {
            self.n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| BodyError::Cut(error.into()))))
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
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    fn frames(
        pause: impl Fn(u32) -> Duration + Send + 'static,
    ) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames = unfold((0, pause), |(n, pause)| async move {
            sleep(pause(n)).await;
            let frame = Frame::data(Bytes::from_static(b"x"));
            Some((Ok(frame), (n + 1, pause)))
        });
        StreamBody::new(Box::pin(frames))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_passes_may_be_slow_and_may_not_stop() {
        // Each frame comes later than the previous one: after 0, 12, 48 and 108 s.
        let mut body = TimedBody::new(frames(|n| n * n * SILENCE / 5));
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_ok());
        // The upstream's own pause does not count as the client's.
        sleep(2 * SILENCE).await;
        assert!(body.frame().await.unwrap().is_ok());
        let error = body.frame().await.unwrap().unwrap_err();
        let found = error.to_string();
        assert_eq!(found, "nothing of the request body came for 1 min");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_a_byte_now_and_then_is_not_waited_for_without_end() {
        let mut body = TimedBody::new(frames(|_| Duration::from_secs(5)));
        let began = Instant::now();
        let error = loop {
            if let Err(error) = body.frame().await.unwrap() {
                break error;
            }
        };
        assert!(matches!(error, BodyError::TooSlow { .. }), "{error}");
        assert_eq!(began.elapsed(), GRACE);
    }
}
