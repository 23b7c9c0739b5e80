//! A reply's body, of which the beginning may have been read already.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout_at;

/// The most of an error's body that is read before it goes on to the agent.
const AHEAD: usize = 64 << 10;
/// How long the rest of an error's body may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an upstream sends: the same frames in the same order, whether they were looked at or not.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    ahead: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
}

// === impl UpstreamBody ===

impl UpstreamBody {
    /// Reads the beginning of an error: up to its end or [`AHEAD`], and no longer than [`PATIENCE`].
    pub(super) async fn peek(&mut self) -> Bytes {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut read = Vec::new();
        while read.len() < AHEAD {
            let Ok(Some(frame)) = timeout_at(until, self.rest.frame()).await else {
                break;
            };
            if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                read.extend_from_slice(data);
            }
            let is_broken = frame.is_err();
            self.ahead.push_back(frame);
            if is_broken {
                break;
            }
        }
        read.into()
    }
}

impl From<Incoming> for UpstreamBody {
    fn from(rest: Incoming) -> Self {
        Self {
            ahead: VecDeque::new(),
            rest,
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.ahead.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let data = |frame: &Result<Frame<Bytes>, _>| match frame {
            Ok(frame) => frame.data_ref().map_or(0, Bytes::len),
            Err(_) => 0,
        };
        let n_ahead = self.ahead.iter().map(data).sum::<usize>() as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(n_ahead));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(n_ahead));
        }
        hint
    }
}
