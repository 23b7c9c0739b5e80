//! Bytes back to the agent as they come.
//!
//! Each byte goes on as it came; a cut goes on as a cut (an error here
//! aborts the connection, so that no client takes a torn answer for a whole one, but for one of HTTP/1.0,
//! which knows the end of a reply without a length by that of its connection); and when the agent hangs up,
//! this body is dropped and the upstream's connection with it. The copy for the log is made on the way and
//! can change none of that.

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

/// The longest that `turns.durability: strict` holds an end back: a log that is broken must not
/// keep agents waiting for ever.
const ACK_DEADLINE: Duration = Duration::from_secs(10);

/// No byte came for as long as `upstreams.<name>.idle` allows.
#[derive(Debug, thiserror::Error)]
#[error("the upstream was silent for {0:?}")]
struct Silent(Duration);

/// An upstream's reply on its way to the agent.
pub(crate) struct Relay {
    upstream: UpstreamBody,
    /// What changes the bytes on their way; taken when the reply ends.
    rewrite: Option<Box<dyn Rewrite>>,
    /// The capture; taken when the reply ends.
    recording: Option<Recording>,
    silence: Option<Silence>,
    /// With `strict`: what waits for the log.
    waiting: Option<Waiting>,
    /// The upstream has no more.
    is_over: bool,
}

/// The upstream's allowed silence.
struct Silence {
    allowed: Duration,
    until: Pin<Box<Sleep>>,
}

/// The end of a reply, held back until the log has the turn.
struct Waiting {
    ack: oneshot::Receiver<()>,
    deadline: Pin<Box<Sleep>>,
    /// The frame by which the agent would know that the reply has ended.
    last: Option<Frame<Bytes>>,
}

// === impl Relay ===

impl Relay {
    pub(crate) fn new(
        mut upstream: UpstreamBody,
        recording: Option<Recording>,
        idle: Option<Duration>,
    ) -> Self {
        let silence = idle.map(|allowed| Silence {
            allowed,
            until: Box::pin(sleep(allowed)),
        });
        Self {
            rewrite: upstream.take_rewrite(),
            upstream,
            recording,
            silence,
            waiting: None,
            is_over: false,
        }
    }

    /// Ends the recording; with `strict`, waits for the log from now on, and `last` with it.
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

    /// A frame came. The one by which the agent knows the end, if there is one, ends the recording.
    fn frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        if let Some(Silence { allowed, until }) = &mut self.silence {
            until.as_mut().reset(Instant::now() + *allowed);
        }
        let done = match (&mut self.recording, frame.data_ref()) {
            (Some(recording), Some(data)) => recording.push(data),
            _ => false,
        };
        // A body of known length is at its end with its last byte: nobody polls for more.
        let is_last = self.upstream.is_end_stream();
        let frame = self.rewritten(frame, is_last);
        if done || is_last {
            self.end(StreamEnd::Complete, frame)
        } else {
            frame
        }
    }

    /// The frame as it goes on; nothing, where all of it is held back.
    fn rewritten(&mut self, frame: Frame<Bytes>, is_last: bool) -> Option<Frame<Bytes>> {
        let Some(rewrite) = &mut self.rewrite else {
            return Some(frame);
        };
        let mut out = Vec::new();
        if let Some(data) = frame.data_ref() {
            rewrite.feed(data, &mut out);
        }
        // Trailers speak of bytes that are no more, and stay behind.
        self.finished(out, is_last)
    }

    /// What a rewrite gives, with what it held back where the reply has ended.
    fn finished(&mut self, mut out: Vec<u8>, is_last: bool) -> Option<Frame<Bytes>> {
        if let Some(mut rewrite) = self.rewrite.take_if(|_| is_last) {
            rewrite.finish(&mut out);
        }
        (!out.is_empty()).then(|| Frame::data(out.into()))
    }

    /// The reply broke off: so it does for the agent.
    fn cut(&mut self, why: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.is_over = true;
        self.end(StreamEnd::Cut, None);
        Poll::Ready(Some(Err(why)))
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Silent> {
        let Some(Silence { allowed, until }) = &mut self.silence else {
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
            // The frame that is held back is no longer among the upstream's.
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
    /// The log has the turn, or has had its chance.
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
