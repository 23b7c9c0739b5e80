//! Streams of HTTP/2 whose agent takes nothing.
//!
//! There the connection itself does not stop (`timed_stream`): its other streams go on, and each has a window
//! of its own. While that is shut, hyper keeps the last frame and does not ask for the next one, so no
//! clock inside the body would ever be looked at. From here it is looked at from outside: the body of a
//! stream that has not been asked for more in [`WRITE_TIMEOUT`] is dropped, and with it the place that the
//! stream takes, its upstream's connection and what it holds. An agent that asks after all sees a cut.

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

/// Gives stalled streams up, where there are such: in HTTP/2. Each is watched by a task among these.
#[derive(Debug, Clone)]
pub(crate) struct StalledLayer {
    pub tasks: TaskTracker,
    /// How long a stream may not be asked for.
    pub timeout: Duration,
}

/// A stream's body, and since when its agent has had something to take.
struct Stream {
    /// Taken when it is given up.
    body: Mutex<Option<Body>>,
    agent: IdleClock,
}

struct WatchedBody {
    stream: Arc<Stream>,
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

    /// A body that is given up if nobody asks for it.
    fn watched(&self, body: Body) -> Body {
        let stream = Arc::new(Stream {
            body: Mutex::new(Some(body)),
            agent: IdleClock::not_yet(Instant::now()),
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

/// Drops the stream's body once it has not been asked for in `timeout`.
async fn watch(stream: Arc<Stream>, timeout: Duration) {
    loop {
        let waited = stream.agent.since().map(|since| since.elapsed());
        let left = timeout.saturating_sub(waited.unwrap_or_default());
        if left.is_zero() {
            let given_up = lock(&stream.body).take();
            // What is behind it may take its time to go.
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

    /// A body of a frame each second for ever; whether it is still there.
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
        let [mut stuck, mut slow, mut waiting] = [stuck, slow, waiting].map(watched);
        for body in [&mut stuck, &mut slow] {
            body.frame().await.unwrap().unwrap();
        }
        // Asked for, and the upstream has nothing: that may last.
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut waiting).poll_frame(&mut context).is_pending());
        for _ in 0..4 {
            advance(WRITE_TIMEOUT / 2).await;
            slow.frame().await.unwrap().unwrap();
        }
        assert_eq!(stuck_is.strong_count(), 0);
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
