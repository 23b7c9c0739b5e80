//! Relays a reply's bytes to the agent as they arrive.
//!
//! Each byte is passed on as it arrives, and a cut is passed on as a cut: an error here aborts the connection, so that
//! no client mistakes an incomplete answer for a complete one. (HTTP/1.0 is an exception, because there the end of the
//! connection is the end of a reply without a length.) If the agent closes the connection, this body is dropped, and
//! the upstream's connection with it. The copy for the log is made at the same time and cannot change any of this.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use metaclaw_capture::Recording;
use metaclaw_dialects::rewrite::Rewrite;
use metaclaw_turns::StreamEnd;
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};

use crate::{body::BoxError, upstream::UpstreamBody};

/// The longest time for which `turns.durability: strict` delays the end of a reply, because a broken log must not keep
/// agents waiting forever.
const ACK_DEADLINE: Duration = Duration::from_secs(10);

/// No byte arrived for as long as `upstreams.<name>.idle` allows.
#[derive(Debug, thiserror::Error)]
#[error("the upstream was silent for {0:?}")]
struct Silent(Duration);

pub(crate) struct Relay {
    upstream: UpstreamBody,
    /// Changes the bytes. It is taken when the reply ends.
    rewrite: Option<Box<dyn Rewrite>>,
    /// The capture. It is taken when the reply ends.
    recording: Option<Recording>,
    silence: Option<SilenceLimit>,
    waiting: Option<Waiting>,
    is_over: bool,
}

struct SilenceLimit {
    allowed: Duration,
    until: Pin<Box<Sleep>>,
}

/// The end of a reply, which is delayed until the log has the turn.
struct Waiting {
    ack: oneshot::Receiver<()>,
    deadline: Pin<Box<Sleep>>,
    /// The frame that would show the agent that the reply has ended.
    last: Option<Frame<Bytes>>,
}

// === impl Relay ===

impl Relay {
    pub(crate) fn new(
        mut upstream: UpstreamBody,
        recording: Option<Recording>,
        idle: Option<Duration>,
    ) -> Self {
        let silence = idle.map(|allowed| SilenceLimit {
            allowed,
            until: Box::pin(sleep(allowed)),
        });
        Self {
            rewrite: upstream.rewrite.take(),
            upstream,
            recording,
            silence,
            waiting: None,
            is_over: false,
        }
    }

    /// Ends the recording. With `strict`, waits for the log from now on, and delays `last`.
    fn end(&mut self, how: StreamEnd, last: Option<Frame<Bytes>>) -> Option<Frame<Bytes>> {
        let Some(recording) = self.recording.take() else {
            return last;
        };
        let Some(ack) = recording.end(how) else {
            return last;
        };
        self.waiting = Some(Waiting {
            ack,
            deadline: Box::pin(sleep(ACK_DEADLINE)),
            last,
        });
        None
    }

    /// Processes a frame. The frame that shows the agent the end, if there is one, ends the recording.
    fn frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        if let Some(SilenceLimit { allowed, until }) = &mut self.silence {
            until.as_mut().reset(Instant::now() + *allowed);
        }
        let done = match (&mut self.recording, frame.data_ref()) {
            (Some(recording), Some(data)) => recording.push(data),
            _ => false,
        };
        // A body of known length ends with its last byte, and nobody polls for more.
        let is_last = self.upstream.is_end_stream();
        let frame = self.rewritten(frame, is_last);
        if done || is_last {
            self.end(StreamEnd::Complete, frame)
        } else {
            frame
        }
    }

    fn rewritten(&mut self, frame: Frame<Bytes>, is_last: bool) -> Option<Frame<Bytes>> {
        let Some(rewrite) = &mut self.rewrite else {
            return Some(frame);
        };
        let mut out = Vec::new();
        if let Some(data) = frame.data_ref() {
            rewrite.feed(data, &mut out);
        }
        // Trailers describe the original bytes, so they are dropped.
        self.finished(out, is_last)
    }

    fn finished(&mut self, mut out: Vec<u8>, is_last: bool) -> Option<Frame<Bytes>> {
        if let Some(mut rewrite) = self.rewrite.take_if(|_| is_last) {
            rewrite.finish(&mut out);
        }
        (!out.is_empty()).then(|| Frame::data(out.into()))
    }

    /// The reply broke off, so the agent's reply is cut too.
    fn cut(&mut self, why: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.is_over = true;
        self.end(StreamEnd::Cut, None);
        Poll::Ready(Some(Err(why)))
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Silent> {
        let Some(SilenceLimit { allowed, until }) = &mut self.silence else {
            return Poll::Pending;
        };
        until.as_mut().poll(cx).map(|()| Silent(*allowed))
    }
}

impl HttpBody for Relay {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some(waiting) = &mut this.waiting {
                let last = ready!(waiting.poll(cx));
                this.waiting = None;
                if let Some(frame) = last {
                    return Poll::Ready(Some(Ok(frame)));
                }
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(frame) = this.frame(frame) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    return this.cut(error);
                }
                Poll::Ready(None) => {
                    this.is_over = true;
                    let last = this.finished(Vec::new(), true);
                    if let Some(frame) = this.end(StreamEnd::Complete, last) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Poll::Pending => {
                    let silent = ready!(this.poll_silence(cx));
                    return this.cut(silent.into());
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_ours_done = self.waiting.is_none() && self.rewrite.is_none();
        is_ours_done && self.recording.is_none() && self.upstream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rewrite.is_some() {
            return SizeHint::default();
        }
        let waiting = self.waiting.as_ref();
        match waiting.and_then(|waiting| waiting.last.as_ref()) {
            // The held frame is not among the upstream's any more.
            Some(frame) => {
                SizeHint::with_exact(frame.data_ref().map_or(0, |data| data.len() as u64))
            }
            None => self.upstream.size_hint(),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let how = if self.upstream.is_end_stream() {
            StreamEnd::Complete
        } else {
            StreamEnd::ClientGone
        };
        self.end(how, None);
    }
}

// === impl Waiting ===

impl Waiting {
    /// The log has the turn, or the time for it is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let acknowledged = Pin::new(&mut self.ack).poll(cx).is_ready();
        if acknowledged || self.deadline.as_mut().poll(cx).is_ready() {
            Poll::Ready(self.last.take())
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests;
