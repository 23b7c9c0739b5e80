//! Tracks how far a request was sent, because a long request over a slow line does not mean that the upstream does not
//! answer.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    body::{Body, BoxError, longer},
    idle_clock::IdleClock,
    lock::lock,
};

/// Bytes that the connection gets at once. It polls for more when it has written most of them.
const PIECE: usize = 16 << 10;

/// A request's body that records when the connection took a part of it.
struct Uploading {
    body: Body,
    rest: Bytes,
    progress: Arc<UploadProgress>,
}

#[derive(Debug)]
pub(super) struct UploadProgress {
    /// Since when the upstream is awaited, and not the caller's next bytes.
    awaited: IdleClock,
    broken: Mutex<Option<BoxError>>,
}

pub(super) fn watched(body: Body) -> (Body, Arc<UploadProgress>) {
    let progress = Arc::new(UploadProgress {
        awaited: IdleClock::from(Instant::now()),
        broken: Mutex::default(),
    });
    let body = Uploading {
        body,
        rest: Bytes::new(),
        progress: Arc::clone(&progress),
    };
    (body.boxed_unsync(), progress)
}

// === impl UploadProgress ===

impl UploadProgress {
    /// Waits for a reply that begins within `after`, counted from when the connection last took a part of the request.
    /// Returns `None` if it does not begin in time.
    pub(super) async fn in_time<T>(
        &self,
        after: Duration,
        reply: impl Future<Output = T>,
    ) -> Option<T> {
        let mut reply = pin!(reply);
        let mut until = self.since() + after;
        loop {
            if let Ok(reply) = timeout_at(until, &mut reply).await {
                return Some(reply);
            }
            let later = self.since() + after;
            if later <= until {
                return None;
            }
            until = later;
        }
    }

    pub(super) fn broken(&self) -> Option<BoxError> {
        lock(&self.broken).take()
    }

    /// Returns since when the upstream has been awaited. While the caller is awaited, this is now.
    fn since(&self) -> Instant {
        self.awaited.since().unwrap_or_else(Instant::now)
    }
}

// === impl Uploading ===

impl HttpBody for Uploading {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                this.progress.awaited.rests();
                return Poll::Pending;
            };
            this.progress.awaited.moved();
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => {
                    let cut = BoxError::from(error.to_string());
                    *lock(&this.progress.broken) = Some(error);
                    return Poll::Ready(Some(Err(cut)));
                }
                None => return Poll::Ready(None),
            }
        }
        this.progress.awaited.moved();
        let n_bytes = this.rest.len().min(PIECE);
        let piece = this.rest.split_to(n_bytes);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        longer(&self.body.size_hint(), self.rest.len())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::unfold;
    use http_body_util::StreamBody;
    use tokio::time::sleep;

    use super::*;
    use crate::body::full;

    const AFTER: Duration = Duration::from_secs(5);

    /// An upstream takes so many pieces, one per second, and then answers after `thinks`.
    async fn takes(mut body: Body, n_pieces: usize, thinks: Duration) -> u64 {
        let mut n_bytes = 0;
        for _ in 0..n_pieces {
            sleep(Duration::from_secs(1)).await;
            let Some(frame) = body.frame().await else {
                break;
            };
            n_bytes += frame.unwrap().into_data().unwrap().len() as u64;
        }
        sleep(thinks).await;
        n_bytes
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_begins_when_the_request_has_gone_up() {
        let whole = || watched(full(vec![0; 20 * PIECE].into()));
        let (body, progress) = whole();
        let reply = takes(body, 99, AFTER / 2);
        assert_eq!(
            progress.in_time(AFTER, reply).await,
            Some(20 * PIECE as u64)
        );

        let (body, progress) = whole();
        let reply = takes(body, 99, 2 * AFTER);
        let began = Instant::now();
        assert_eq!(progress.in_time(AFTER, reply).await, None);
        assert_eq!(began.elapsed().as_secs(), 21 + AFTER.as_secs());

        // An upstream that takes no more has the same time.
        let (body, progress) = whole();
        let reply = takes(body, 3, 99 * AFTER);
        let began = Instant::now();
        assert_eq!(progress.in_time(AFTER, reply).await, None);
        assert_eq!(began.elapsed().as_secs(), 3 + AFTER.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_sends_slowly_is_not_the_upstreams_fault() {
        let frames = unfold(0, |n| async move {
            sleep(3 * AFTER).await;
            let frame = Frame::data(Bytes::from_static(b"x"));
            (n < 3).then_some((Ok::<_, Infallible>(frame), n + 1))
        });
        let body = StreamBody::new(frames).map_err(|never| match never {});
        let (body, progress) = watched(body.boxed_unsync());
        let reply = takes(body, 99, AFTER / 2);
        assert_eq!(progress.in_time(AFTER, reply).await, Some(3));
    }

    #[tokio::test]
    async fn what_goes_up_is_the_same() {
        let bytes: Vec<u8> = (0..=255).cycle().take(5 * PIECE + 7).collect();
        let (body, _) = watched(full(bytes.clone().into()));
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
    }
}
