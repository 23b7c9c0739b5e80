//! Streams of HTTP/2 whose agent takes nothing.
//!
//! There the connection itself does not stop (`timed_stream`): its other streams go on, and each has a window
//! of its own. While that is shut, hyper keeps the last frame and does not ask for the next one, so no
//! clock inside the body would ever be looked at. From here it is looked at from outside: the body of a
//! stream that has not been asked for more in [`WRITE_TIMEOUT`] is dropped, and with it the place that the stream
//! takes, its upstream's connection and what it holds. An agent that asks after all sees a cut.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::{
    body::{Body, BoxError},
    idle_clock::IdleClock,
    timed_stream::{WRITE_TIMEOUT, WriteStalled},
};

/// Streams that are over are not looked for below this many.
const FEW: usize = 64;

/// The streams under way.
#[derive(Debug)]
pub(crate) struct StalledStreams {
    began: Instant,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    each: Vec<Weak<Stream>>,
    /// How many there may be before those that are over are left out.
    bound: usize,
}

/// A stream's body, and since when its agent has had something to take.
struct Stream {
    /// Taken when it is given up.
    body: Mutex<Option<Body>>,
    agent: IdleClock,
}

/// What hyper asks.
struct Watched(Arc<Stream>);

/// Gives stalled streams up, where there are such: in HTTP/2.
#[derive(Debug, Clone)]
pub(crate) struct StalledLayer(pub Arc<StalledStreams>);

/// See [`StalledLayer`].
#[derive(Debug, Clone)]
pub(crate) struct WatchStalled<S> {
    inner: S,
    streams: Arc<StalledStreams>,
}

// === impl StalledLayer ===

impl<S> Layer<S> for StalledLayer {
    type Service = WatchStalled<S>;

    fn layer(&self, inner: S) -> WatchStalled<S> {
        let streams = Arc::clone(&self.0);
        WatchStalled { inner, streams }
    }
}

// === impl WatchStalled ===

impl<S, B> Service<Request<B>> for WatchStalled<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_http2 = request.version() == Version::HTTP_2;
        let answer = self.inner.call(request);
        if !is_http2 {
            return Box::pin(answer);
        }
        let streams = Arc::clone(&self.streams);
        Box::pin(async move { Ok(streams.watch(answer.await?)) })
    }
}

// === impl StalledStreams ===

impl StalledStreams {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            streams: Mutex::default(),
        }
    }

    /// A reply whose body is given up if nobody asks for it.
    fn watch(&self, reply: Response<Body>) -> Response<Body> {
        reply.map(|body| {
            let stream = Arc::new(Stream {
                body: Mutex::new(Some(body)),
                agent: IdleClock::not_yet(self.began),
            });
            self.lock().push(&stream);
            Body::new(Watched(stream))
        })
    }

    /// Gives up what has not been asked for in [`WRITE_TIMEOUT`].
    pub(crate) fn sweep(&self) {
        self.give_up(WRITE_TIMEOUT);
    }

    /// The same, with a patience of one's own.
    pub(crate) fn give_up(&self, patience: Duration) {
        let streams = self.lock().each.clone();
        for stream in streams {
            if let Some(stream) = stream.upgrade() {
                stream.give_up(patience);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Streams ===

impl Streams {
    /// Adds one. Now and then those that are over are forgotten, so that there are at most twice as many
    /// as are under way.
    fn push(&mut self, stream: &Arc<Stream>) {
        if self.each.len() >= self.bound {
            self.each.retain(|stream| stream.strong_count() > 0);
            self.bound = (2 * self.each.len()).max(FEW);
        }
        self.each.push(Arc::downgrade(stream));
    }
}

// === impl Stream ===

impl Stream {
    fn give_up(&self, patience: Duration) {
        let mut body = self.lock();
        let since = self.agent.since();
        if since.is_some_and(|since| since.elapsed() >= patience) {
            let given_up = body.take();
            // What is behind it may take its time to go.
            drop(body);
            drop(given_up);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Body>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watched ===

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let stream = &self.0;
        let mut body = stream.lock();
        let Some(body) = body.as_mut() else {
            return Poll::Ready(Some(Err(WriteStalled.into())));
        };
        let frame = Pin::new(body).poll_frame(cx);
        match frame {
            Poll::Ready(_) => stream.agent.moved(),
            Poll::Pending => stream.agent.rests(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let body = self.0.lock();
        body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.lock();
        body.as_ref()
            .map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::unfold;
    use http_body_util::{BodyExt, StreamBody};
    use tokio::time::{advance, sleep};

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
        let stalled = StalledStreams::new();
        let [(stuck, stuck_is), (slow, slow_is), (waiting, waiting_is)] =
            [ticks(), ticks(), ticks()];
        let watch = |body| stalled.watch(Response::new(body)).into_body();
        let [mut stuck, mut slow, mut waiting] = [stuck, slow, waiting].map(watch);
        for body in [&mut stuck, &mut slow] {
            body.frame().await.unwrap().unwrap();
        }
        // Asked for, and the upstream has nothing: that may last.
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut waiting).poll_frame(&mut context).is_pending());
        for _ in 0..2 {
            advance(WRITE_TIMEOUT / 2).await;
            slow.frame().await.unwrap().unwrap();
            stalled.sweep();
        }
        assert_eq!(stuck_is.strong_count(), 0);
        assert_eq!((slow_is.strong_count(), waiting_is.strong_count()), (1, 1));
        let end = stuck.frame().await.unwrap().unwrap_err();
        assert!(end.is::<WriteStalled>() && !stuck.is_end_stream());
    }

    #[tokio::test]
    async fn what_is_over_is_forgotten() {
        let stalled = StalledStreams::new();
        let watch = || stalled.watch(Response::new(ticks().0));
        let kept: Vec<_> = (0..FEW).map(|_| watch()).collect();
        for _ in 0..100 * FEW {
            drop(watch());
            assert!(stalled.lock().each.len() <= 2 * FEW);
        }
        let alive = |stream: &&Weak<Stream>| stream.strong_count() > 0;
        assert_eq!(stalled.lock().each.iter().filter(alive).count(), kept.len());
    }
}
