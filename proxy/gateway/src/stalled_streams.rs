//! HTTP/2 streams whose agent reads nothing.
//!
//! In this case the connection itself does not stop (`timed_stream`): its other streams continue, and each has its own
//! window. While that window is closed, hyper keeps the last frame and does not poll for the next one, so a clock
//! inside the body would never be checked. Therefore it is checked from outside: if a stream's body was not polled for
//! [`WRITE_TIMEOUT`], it is dropped, and with it the stream's permit, its upstream's connection and everything that it
//! holds. An agent that reads again later sees a cut.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, sleep};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::service_fn;

use crate::{
    body::{Body, BoxError},
    handler::{Answer, Handler},
    idle_clock::IdleClock,
    lock::lock,
    timed_stream::{WRITE_TIMEOUT, WriteStalled},
};

/// Closes stalled streams of HTTP/2. Each stream is watched by one of these tasks.
#[derive(Debug, Clone)]
pub(crate) struct StalledLayer {
    pub tasks: TaskTracker,
    /// How long a stream may not be polled.
    pub timeout: Duration,
}

/// A stream's body, and since when its agent has taken nothing. The time before the first poll counts too, so that it
/// does not matter whether hyper polls a body before or after the window is open.
struct StallTimedBody {
    /// It is taken when the stream is closed.
    body: Mutex<Option<Body>>,
    agent: IdleClock,
}

struct WatchedBody {
    stream: Arc<StallTimedBody>,
    _watch: AbortOnDropHandle<()>,
}

// === impl StalledLayer ===

impl StalledLayer {
    pub(crate) fn new(tasks: &TaskTracker) -> Self {
        Self {
            tasks: tasks.clone(),
            timeout: WRITE_TIMEOUT,
        }
    }

    /// Wraps a body that is dropped if nobody polls it.
    fn watched(&self, body: Body) -> Body {
        let stream = Arc::new(StallTimedBody {
            body: Mutex::new(Some(body)),
            agent: IdleClock::from(Instant::now()),
        });
        let watch = self.tasks.spawn(watch(Arc::clone(&stream), self.timeout));
        Body::new(WatchedBody {
            stream,
            _watch: AbortOnDropHandle::new(watch),
        })
    }

    pub(crate) fn around<B, E: 'static>(self, mut inner: impl Handler<B, E>) -> impl Handler<B, E> {
        service_fn(move |request: Request<B>| -> Answer<E> {
            let is_http2 = request.version() == Version::HTTP_2;
            let answer = inner.call(request);
            if !is_http2 {
                return answer;
            }
            let layer = self.clone();
            Box::pin(async move { Ok(answer.await?.map(|body| layer.watched(body))) })
        })
    }
}

/// Drops the stream's body once it has not been polled for `timeout`.
async fn watch(stream: Arc<StallTimedBody>, timeout: Duration) {
    loop {
        let waited = stream.agent.since().map(|since| since.elapsed());
        let left = timeout.saturating_sub(waited.unwrap_or_default());
        if left.is_zero() {
            let given_up = lock(&stream.body).take();
            // Dropping it may take time.
            return drop(given_up);
        }
        sleep(left).await;
    }
}

// === impl WatchedBody ===

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut body = lock(&self.stream.body);
        let Some(body) = body.as_mut() else {
            return Poll::Ready(Some(Err(WriteStalled.into())));
        };
        let frame = Pin::new(body).poll_frame(cx);
        match frame {
            Poll::Ready(_) => self.stream.agent.moved(),
            Poll::Pending => self.stream.agent.rests(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let body = lock(&self.stream.body);
        body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = lock(&self.stream.body);
        body.as_ref()
            .map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Weak};

    use futures_util::stream::unfold;
    use http_body_util::{BodyExt, StreamBody};
    use tokio::time::advance;

    use super::*;

    /// Makes an endless body with one frame per second, and a handle that shows whether it still exists.
    fn ticks() -> (Body, Weak<()>) {
        let alive = Arc::new(());
        let watch = Arc::downgrade(&alive);
        let frames = unfold(alive, |alive| async {
            sleep(Duration::from_secs(1)).await;
            let frame = Frame::data(Bytes::from_static(b"tick"));
            Some((Ok::<_, Infallible>(frame), alive))
        });
        let body = StreamBody::new(frames).map_err(|never| match never {});
        (body.boxed_unsync(), watch)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_is_given_up_and_what_nobody_has_is_waited_for() {
        let layer = StalledLayer::new(&TaskTracker::new());
        let [(stuck, stuck_is), (slow, slow_is), (waiting, waiting_is)] =
            [ticks(), ticks(), ticks()];
        let watched = |body| layer.watched(body);
        // It is never polled.
        let (unpolled, unpolled_is) = ticks();
        let _unpolled = watched(unpolled);
        let [mut stuck, mut slow, mut waiting] = [stuck, slow, waiting].map(watched);
        for body in [&mut stuck, &mut slow] {
            body.frame().await.unwrap().unwrap();
        }
        // The body is polled, and the upstream has nothing yet. This may last.
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut waiting).poll_frame(&mut context).is_pending());
        for _ in 0..4 {
            advance(WRITE_TIMEOUT / 2).await;
            slow.frame().await.unwrap().unwrap();
        }
        assert_eq!(
            (stuck_is.strong_count(), unpolled_is.strong_count()),
            (0, 0)
        );
        assert_eq!((slow_is.strong_count(), waiting_is.strong_count()), (1, 1));
        let end = stuck.frame().await.unwrap().unwrap_err();
        assert!(end.is::<WriteStalled>() && !stuck.is_end_stream());
    }

    #[tokio::test]
    async fn what_is_over_is_not_watched() {
        let tasks = TaskTracker::new();
        let layer = StalledLayer::new(&tasks);
        for _ in 0..100 {
            drop(layer.watched(ticks().0));
        }
        tasks.close();
        tasks.wait().await;
    }
}
